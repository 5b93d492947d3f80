"""Schedules for hyper-parameters that change from round to round."""

from __future__ import annotations

import math
import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainSerializer

from solera.core.frozen import Frozen

_NUMBER = r"[-+.\deE]+"
_DECAY = re.compile(rf"\s*(?P<start>{_NUMBER})\s*\*\s*(?P<decay>{_NUMBER})\s*\^\s*round\s*")
_COSINE = re.compile(rf"\s*(?P<start>{_NUMBER})\s*\*\s*cosine\(\s*(?P<rounds>\d+)\s*\)\s*")
LOWEST = 0.05  # of the start, where a cosine ends


class Schedule(Frozen):
    """`start * decay^round`; a plain number is the case `decay = 1`.

    With `rounds`, half a cosine wave that falls to a twentieth in so many rounds, and stays there.
    """

    start: float = Field(ge=0)
    decay: float = Field(default=1.0, ge=0)
    rounds: int = Field(default=0, ge=0)

    def at(self, round_: int) -> float:
        """The value in a round, counted from 0."""
        if self.rounds:
            wave = (1 + math.cos(math.pi * min(1.0, round_ / self.rounds))) / 2
            return self.start * (LOWEST + (1 - LOWEST) * wave)
        return self.start * self.decay**round_


def _parse(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return value
    text = str(value)
    form = _DECAY.fullmatch(text) or _COSINE.fullmatch(text)
    parts = form.groupdict() if form else {"start": text}
    try:
        return {name: float(part) for name, part in parts.items()}
    except ValueError:
        examples = "0.1*0.97^round or 0.1*cosine(500)"
        raise ValueError(f"{value!r} is neither a number nor a schedule such as {examples}") from None


def _show(value: Schedule) -> float | str:
    if value.rounds:
        return f"{value.start!r}*cosine({value.rounds})"
    return value.start if value.decay == 1.0 else f"{value.start!r}*{value.decay!r}^round"


# A number, or a text such as "0.1*0.97^round" or "0.1*cosine(500)".
Scheduled = Annotated[Schedule, BeforeValidator(_parse), PlainSerializer(_show, return_type=float | str)]
