"""Processes that simulate one federation together, by torch.distributed.

Clients are divided into a fixed number of shards, and every rank owns some of them. What a shard computes
does not depend on who owns it, and sums over shards are exact, so that any number of ranks gives the same
result.

Ranks exchange tensors, and JSON that names them. They never unpickle what another rank sends.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Sequence
from typing import Annotated

import numpy as np
import torch
import torch.distributed as dist
from pydantic import Field, TypeAdapter, ValidationError
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from solera.core.errors import DivergedError, RunError
from solera.core.fixed_point import rounded
from solera.core.leaf import Params
from solera.core.tensor_files import DTYPES
from solera.core.types import Ints

SHARDS = 30  # divisible by 2, 3, 5, 6, 10 and 15 ranks
EXACT_BITS = 52  # a sum of multiples of 2^-f below 2^(52-f) is exact in double precision
MOST_ABOUT = 1 << 20  # bytes of JSON that describe the tensors of one rank
MOST_BYTES = 1 << 38  # bytes of all tensors that one rank sends at once

_Length = Annotated[int, Field(ge=0, le=MOST_BYTES)]
_ABOUT = TypeAdapter(dict[str, tuple[str, Annotated[tuple[_Length, ...], Field(max_length=8)]]])
_Described = dict[str, tuple[torch.dtype, tuple[int, ...]]]  # type and shape of every tensor
_TYPES = {name: dtype for dtype, name in DTYPES.items()}


class Ranks:
    """This process among the others."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size

    @classmethod
    def joined(cls) -> Ranks | None:
        """The ranks that torchrun has started, this one included; None if it has started none."""
        if not dist.is_torchelastic_launched():
            return None
        if not dist.is_initialized():
            store, rank, size = next(rendezvous("env://"))
            # Ranks that are started again find the store of those before them, with addresses of lost ranks.
            attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
            own = PrefixStore(f"attempt-{attempt}", store)
            dist.init_process_group("gloo", store=own, rank=rank, world_size=size)
        return cls(dist.get_rank(), dist.get_world_size())

    def largest(self, values: Tensor) -> Tensor:
        """The largest of every value over all ranks."""
        found = values.clone()
        dist.all_reduce(found, op=dist.ReduceOp.MAX)
        return found

    def any(self, said: bool) -> bool:
        """Whether any rank says so."""
        return bool(self.largest(torch.tensor([float(said)])))

    def add(self, values: Tensor) -> None:
        """Replace values by their sum over all ranks."""
        dist.all_reduce(values)

    def gathered_by_first(self, tensors: Params) -> list[Params]:
        """The tensors of all ranks on the first one, and nothing on the others."""
        found = list(self.sent_to_first(tensors))
        return [] if self.rank else [tensors, *found]

    def gathered(self, tensors: Params) -> list[Params]:
        """The tensors of all ranks, on every rank. Their names and shapes may differ between ranks."""
        found = []
        for source, about in enumerate(self._described(tensors)):
            found.append(tensors if source == self.rank else _empty(about))
            for each in _as_bytes(found[-1]):
                dist.broadcast(each, source)
        return found

    def add_on_first(self, values: Tensor) -> None:
        """Replace values by their sum over all ranks, on the first one. The others' are undefined."""
        dist.reduce(values, 0)

    def sent_to_first(self, tensors: Params) -> Iterator[Params]:
        """The tensors of the other ranks, one rank at a time, on the first one."""
        described = self._described(tensors)
        if self.rank:
            for each in _as_bytes(tensors):
                dist.send(each, 0)
            return
        for source in range(1, self.size):
            found = _empty(described[source])
            for each in _as_bytes(found):
                dist.recv(each, source)
            yield found

    def from_first(self, tensors: Params | None) -> Params:
        """The tensors of the first rank, on every rank."""
        return self.gathered(tensors or {})[0]

    def wait(self) -> None:
        """Wait for all ranks."""
        dist.barrier()

    def _described(self, tensors: Params) -> list[_Described]:
        """What every rank is about to send. All ranks tell it before any of them sends a tensor."""
        about = {name: (DTYPES[each.dtype], tuple(each.shape)) for name, each in tensors.items()}
        text = torch.frombuffer(bytearray(json.dumps(about).encode()), dtype=torch.uint8)
        lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
        dist.all_gather(lengths, torch.tensor([len(text)]))
        counts = [int(length) for length in lengths]
        for source, count in enumerate(counts):
            if not 0 < count <= MOST_ABOUT:
                raise _foreign(source)
        texts = [torch.zeros(max(counts), dtype=torch.uint8) for _ in counts]
        dist.all_gather(texts, torch.nn.functional.pad(text, (0, max(counts) - len(text))))
        return [
            _parsed(source, texts[source][:count].numpy().tobytes()) for source, count in enumerate(counts)
        ]


def _parsed(source: int, about: bytes) -> _Described:
    try:
        told = {name: (_TYPES[kind], shape) for name, (kind, shape) in _ABOUT.validate_json(about).items()}
    except (ValidationError, KeyError):
        raise _foreign(source) from None
    if sum(kind.itemsize * math.prod(shape) for kind, shape in told.values()) > MOST_BYTES:
        raise _foreign(source)
    return told


def _empty(described: _Described) -> Params:
    return {name: torch.empty(shape, dtype=kind) for name, (kind, shape) in described.items()}


def _as_bytes(tensors: Params) -> Iterator[Tensor]:
    """The bytes of tensors that have any. Those of contiguous tensors are no copy."""
    for each in tensors.values():
        if each.numel():
            yield each.detach().contiguous().flatten().view(torch.uint8)


def _foreign(source: int) -> RunError:
    return RunError(
        f"rank {source} sent something that no rank of this version sends",
        "start all ranks with the same version of Solera, in a network that no other program reaches",
    )


def deal(sizes: Ints, shards: int) -> Ints:
    """The shard of every client: clients of like size together, so that their blocks need little padding.

    All shards have about as many training items.
    """
    order = np.argsort(-sizes.astype(np.int64), kind="stable")
    cost = sizes[order].astype(np.float64) + 1e-9
    middle = np.cumsum(cost) - cost / 2
    result = np.empty(len(sizes), dtype=np.int64)
    result[order] = np.minimum(middle * shards / cost.sum(), shards - 1).astype(np.int64)
    return result


def added(ranks: Ranks, parts: Sequence[Tensor]) -> Tensor:
    """The sum of the parts of all ranks' shards, in double precision, exact in any order."""
    peak = torch.stack([part.abs().max() for part in parts]).max().double()
    bits = _fraction_bits(ranks, peak[None])
    total = torch.zeros(parts[0].shape, dtype=torch.float64)
    for part in parts:
        total += rounded(part.double(), bits)
    ranks.add(total)
    return total


def _fraction_bits(ranks: Ranks, peak: Tensor) -> int:
    """How many bits after the point leave sums over all shards exact, given the largest absolute value."""
    largest = float(ranks.largest(peak))
    if not math.isfinite(largest):
        raise DivergedError("the clients' tables are not finite", "lower the learning rate")
    return EXACT_BITS - math.frexp(largest * SHARDS)[1]
