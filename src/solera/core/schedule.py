"""Schedules for hyper-parameters that change from round to round."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PlainSerializer

from solera.core.frozen import Frozen

_FORM = re.compile(r"\s*(?P<start>[-+.\deE]+)\s*\*\s*(?P<decay>[-+.\deE]+)\s*\^\s*round\s*")


class Schedule(Frozen):
    """`start * decay^round`; a plain number is the case `decay = 1`."""

    start: float = Field(ge=0)
    decay: float = Field(default=1.0, ge=0)

    def at(self, round_: int) -> float:
        """The value in a round, counted from 0."""
        return self.start * self.decay**round_


def _parse(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return value
    form = _FORM.fullmatch(str(value))
    parts = (form["start"], form["decay"]) if form else (str(value), "1")
    try:
        start, decay = map(float, parts)
    except ValueError:
        raise ValueError(f"{value!r} is neither a number nor a schedule such as 0.1*0.97^round") from None
    return {"start": start, "decay": decay}


def _show(value: Schedule) -> float | str:
    return value.start if value.decay == 1.0 else f"{value.start!r}*{value.decay!r}^round"


# A number, or a text such as "0.1*0.97^round".
Scheduled = Annotated[Schedule, BeforeValidator(_parse), PlainSerializer(_show, return_type=float | str)]
