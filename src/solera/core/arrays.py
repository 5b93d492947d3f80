"""NumPy array types, named by what they hold."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]  # indices and counts
Floats = NDArray[np.float64]
