"""Times of a history in days, for models whose memories fade by days."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from solera.core.types import Floats

DAY = 86_400  # seconds


def days_of(times: Sequence[int | None]) -> Floats | None:
    """Times of a history in days, oldest first. Unknown ones are taken for the oldest; None if all are."""
    oldest = next((time for time in times if time is not None), None)
    if oldest is None:
        return None
    return np.array([oldest if time is None else time for time in times]) / DAY
