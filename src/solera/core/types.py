"""NumPy arrays, named by what they hold, and the base of settings, results and records."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

Ints = NDArray[np.integer[Any]]  # indices and counts, of 32 or 64 bits
Floats = NDArray[np.float64]


class Frozen(BaseModel):
    """A typed value that cannot change, with finite numbers and no unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
