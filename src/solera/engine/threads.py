"""torch's own threads, set on purpose and given back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def torch_threads(threads: int) -> Iterator[None]:
    """Let torch use that many threads (0: as many as it did) for a while."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
