"""Thread and memory settings of this process."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # from glibc's malloc.h
_LARGE = 1 << 30


@cache
def keep_freed_memory() -> bool:
    """Keep freed memory for reuse. Return whether the C library supports this.

    A block's tensors take tens of megabytes. By default the C library returns chunks of that size to the
    system at once, which then has to clear every page of the next one: this was measured as a third of a
    round's time. Does nothing if the library is not glibc.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return all(mallopt(what, _LARGE) == 1 for what in (_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD))


@contextmanager
def torch_threads(threads: int) -> Iterator[None]:
    """Temporarily set the number of torch threads (0: leave it unchanged)."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
