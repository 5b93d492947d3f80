"""Processes that simulate one federation together, by torch.distributed.

Clients are divided into a fixed number of shards, and every rank owns some of them. What a shard computes
does not depend on who owns it, and sums over shards are exact, so that any number of ranks gives the same
result.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from solera.core.arrays import Ints
from solera.core.errors import DivergedError
from solera.core.fixed_point import rounded
from solera.core.spec import Params

SHARDS = 30  # divisible by 2, 3, 5, 6, 10 and 15 ranks
EXACT_BITS = 52  # a sum of multiples of 2^-f below 2^(52-f) is exact in double precision


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

    def add(self, values: Tensor) -> None:
        """Replace values by their sum over all ranks."""
        dist.all_reduce(values)

    def gathered_by_first(self, value: Any) -> list[Any]:
        """The values of all ranks on the first one, and nothing on the others."""
        found: list[Any] = [None] * self.size if self.rank == 0 else []
        dist.gather_object(value, found or None)
        return found

    def gathered(self, value: Any) -> list[Any]:
        """The values of all ranks, on every rank."""
        found: list[Any] = [None] * self.size
        dist.all_gather_object(found, value)
        return found

    def add_on_first(self, values: Tensor) -> None:
        """Replace values by their sum over all ranks, on the first one. The others' are undefined."""
        dist.reduce(values, 0)

    def sent_to_first(self, *values: Tensor) -> Iterator[tuple[Tensor, ...]]:
        """The values of the other ranks, on the first one. They may have any length."""
        if self.rank:
            dist.send(torch.tensor([len(each) for each in values]), 0)
            for each in values:
                dist.send(each.contiguous(), 0)
            return
        for source in range(1, self.size):
            lengths = torch.zeros(len(values), dtype=torch.int64)
            dist.recv(lengths, source)
            found = tuple(
                each.new_empty(length) for each, length in zip(values, lengths.tolist(), strict=True)
            )
            for each in found:
                dist.recv(each, source)
            yield found

    def exchanged_counts(self, counts: Sequence[int]) -> list[int]:
        """How many rows each rank sends to this one, given how many this one sends to each."""
        found = torch.empty(self.size, dtype=torch.int64)
        dist.all_to_all_single(found, torch.tensor(counts))
        return found.tolist()

    def exchanged(self, values: Tensor, sent: Sequence[int], got: Sequence[int]) -> Tensor:
        """Send `sent[r]` rows of the values to each rank r, and receive `got[r]` from it, rank after rank."""
        found = values.new_empty((sum(got), *values.shape[1:]))
        dist.all_to_all_single(found, values.contiguous(), list(got), list(sent))
        return found

    def show(self, values: Tensor, owner: int) -> None:
        """Replace values by those of one rank, on every rank."""
        dist.broadcast(values, owner)

    def send_to_first(self, values: Tensor) -> None:
        """Send values to the first rank, which must ask for them with `receive_from`."""
        dist.send(values.contiguous(), 0)

    def receive_from(self, rank: int, values: Tensor) -> None:
        """Replace values by what a rank sends."""
        dist.recv(values, rank)

    def from_first(self, tensors: Params | None) -> Params:
        """The tensors of the first rank, on every rank."""
        if tensors:
            tensors = {name: value.contiguous() for name, value in tensors.items()}
        about: list[Any] = [tensors and {name: (v.shape, v.dtype) for name, v in tensors.items()}]
        dist.broadcast_object_list(about)
        found = tensors or {name: torch.empty(shape, dtype=kind) for name, (shape, kind) in about[0].items()}
        for each in found.values():
            dist.broadcast(each, 0)
        return found

    def wait(self) -> None:
        """Wait for all ranks."""
        dist.barrier()


class Share(NamedTuple):
    """The clients that one rank owns."""

    ranks: Ranks
    clients: Ints  # ascending numbers in the whole federation
    shards: Ints  # the shard of each
    able: Ints  # all clients of the federation with training items

    @classmethod
    def of(cls, ranks: Ranks, sizes: Ints) -> Share:
        """The share of one rank, given every client's number of training items."""
        shards = deal(sizes, SHARDS)
        own = np.flatnonzero(shards % ranks.size == ranks.rank)
        return cls(ranks, own, shards[own], np.flatnonzero(sizes))

    def places(self, clients: Ints) -> Ints:
        """The places of own clients among all own ones."""
        return np.searchsorted(self.clients, clients)


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
