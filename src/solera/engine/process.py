"""How this process uses threads and memory."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
_LARGE = 1 << 30


@cache
def keep_freed_memory() -> bool:
    """Keep memory that tensors are done with, to be used again; whether the C library has agreed.

    A block's tensors are tens of megabytes. The C library gives chunks of that size back to the system at
    once, which then has to clear every page of the next one: measured, a third of a round's time. Where the
    library is not glibc, nothing happens.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return all(mallopt(what, _LARGE) == 1 for what in (_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD))


@contextmanager
def torch_threads(threads: int) -> Iterator[None]:
    """Let torch use that many threads (0: as many as it did) for a while."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
