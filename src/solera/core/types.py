"""NumPy arrays, named by what they hold."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.integer[Any]]  # indices and counts, of 32 or 64 bits
Floats = NDArray[np.float64]
