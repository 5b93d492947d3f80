"""Memory that tensors are done with stays with the process, to be used again.

A block's tensors are tens of megabytes. The C library gives chunks of that size back to the system at once,
which then has to clear every page of the next one: measured, a third of a round's time. Where the library is
not glibc, nothing happens.
"""

from __future__ import annotations

import ctypes
from functools import cache

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
_LARGE = 1 << 30


@cache
def keep_freed_memory() -> bool:
    """Ask for it, once for the process; whether the library has agreed."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return all(mallopt(what, _LARGE) == 1 for what in (_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD))
