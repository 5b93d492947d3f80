"""Hyper-parameters that may change from round to round."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainSerializer

_FORM = re.compile(r"\s*(?P<start>[-+.\deE]+)\s*\*\s*(?P<decay>[-+.\deE]+)\s*\^\s*round\s*")


class Schedule(BaseModel):
    """`start * decay^round`; a plain number is the case `decay = 1`."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    start: float
    decay: float = 1.0

    def at(self, round_: int) -> float:
        """The value in a round, the first being 0."""
        return self.start * self.decay**round_


def _parse(value: Any) -> Any:
    if isinstance(value, str):
        form = _FORM.fullmatch(value)
        parts = (form["start"], form["decay"]) if form else (value, "1")
        try:
            return Schedule(start=float(parts[0]), decay=float(parts[1]))
        except ValueError:
            raise ValueError(f"{value!r} is neither a number nor like 0.1*0.97^round") from None
    return Schedule(start=float(value)) if isinstance(value, (int, float)) else value


def _show(value: Schedule) -> float | str:
    return value.start if value.decay == 1.0 else f"{value.start!r}*{value.decay!r}^round"


# A number, or a text like "0.1*0.97^round".
Scheduled = Annotated[Schedule, BeforeValidator(_parse), PlainSerializer(_show, return_type=float | str)]
