"""Ask again what a busy server has refused."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import httpx

_PAUSE = 1.0  # seconds between two questions
_Answer = TypeVar("_Answer")


def until_answered(
    ask: Callable[[], _Answer], is_passing: Callable[[httpx.HTTPError], bool], seconds: float
) -> _Answer:
    """The first answer; an error that does not pass, or that has not passed after so many seconds."""
    until = time.monotonic() + seconds
    while True:
        try:
            return ask()
        except httpx.HTTPError as error:
            if not is_passing(error) or time.monotonic() > until:
                raise
        time.sleep(_PAUSE)
