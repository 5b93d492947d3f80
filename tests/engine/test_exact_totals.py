"""Sums over clients in any order and on any number of ranks."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from solera.core.errors import DivergedError
from solera.core.upload import Totals, Upload
from solera.engine import shares
from solera.engine.shares import LARGEST, ExactTotals
from solera.methods import build

N_ITEMS, CLIENTS = 6, 40
SHARDS = range(8)
CPU = torch.device("cpu")


def uploads(largest: float, seed: int = 0) -> list[Upload]:
    """One of each client, with numbers of all sizes up to the largest; two rows per client."""
    draw = torch.Generator().manual_seed(seed)
    found = []
    for _ in range(CLIENTS):
        size = largest * 2.0 ** -torch.randint(0, 60, (2, 3), generator=draw)
        changes = {"items": torch.randn(2, 3, generator=draw) * size}
        found.append(Upload(torch.randperm(N_ITEMS, generator=draw)[:2], torch.tensor([2]), changes))
    return found


@pytest.fixture(autouse=True, params=[0, shares.FEW_ITEMS], ids=["many items", "few items"])
def few_items(request, monkeypatch) -> None:
    """Numbers are rounded one by one, or the sums of shards."""
    monkeypatch.setattr(shares, "FEW_ITEMS", request.param)


def totals(sent: list[Upload], shards: Sequence[int] = SHARDS, weighted: bool = False) -> ExactTotals:
    """Of some shards, one after the other; a shard is five clients."""
    method = build("plgc" if weighted else "fedmf", {"embedding_size": 3})
    found = ExactTotals(method, N_ITEMS, CPU, CLIENTS)
    for shard in shards:
        for number in range(5 * shard, 5 * shard + 5):
            weight = torch.tensor([number % 5 + 1.0], dtype=torch.float64) if weighted else None
            found.add(sent[number], weight)
        found.end_shard()
    return found


def plain(sent: list[Upload]) -> Totals:
    found = Totals(build("fedmf", {"embedding_size": 3}).leaves, N_ITEMS, CPU)
    for upload in sent:
        found.add(upload)
    return found


def items(found: Totals) -> torch.Tensor:
    found.reduce(lambda values: None)
    return found.sums().changes["items"]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("largest", [1.0, 1e5])
def test_the_order_does_not_matter(largest, weighted):
    sent = uploads(largest)
    assert not torch.equal(items(plain(sent)), items(plain(sent[::-1])))
    one, other = totals(sent, SHARDS, weighted), totals(sent, [5, 2, 7, 0, 1, 6, 4, 3], weighted)
    assert torch.equal(items(one), items(other))


def test_numbers_are_rounded_and_not_clipped():
    """62 bits less 20 of the largest change and 6 of 40 clients: multiples of 2^-36."""
    sent = uploads(1e5)
    off = (items(totals(sent)) - items(plain(sent))).abs()
    assert bool((off <= CLIENTS * 2.0**-37 + CLIENTS * 2.0**-53 * items(plain(sent)).abs()).all())
    assert bool((off > 0).any())


def test_several_ranks_have_the_sum_of_one():
    sent = uploads(1.0)
    parts = [totals(sent, SHARDS[start::3]) for start in range(3)]
    told: list[list[torch.Tensor]] = []
    for part in parts:
        told.append([])
        part.reduce(told[-1].append)
    together = iter([sum(values[1:], values[0]) for values in zip(*told, strict=True)])

    def take(values: torch.Tensor) -> None:
        values.copy_(next(together))

    again = totals(sent, [])
    again.reduce(take)
    assert torch.equal(again.sums().changes["items"], items(totals(sent)))


def test_uploads_are_not_changed():
    sent = uploads(1e3)
    for upload in sent:
        upload.changes["items"] = upload.changes["items"].double()
    before = [upload.changes["items"].clone() for upload in sent]
    totals(sent)
    assert all(torch.equal(a, b.changes["items"]) for a, b in zip(before, sent, strict=True))


@pytest.mark.parametrize("wrong", [100 * LARGEST, float("inf"), float("nan")])
def test_all_ranks_hear_of_a_change_that_is_too_large(wrong):
    sent = uploads(1.0)
    sent[7].changes["items"][0, 0] = wrong
    found = totals(sent)
    with pytest.raises(DivergedError, match="by more than 1,048,576"):
        found.reduce(lambda values: None)
    with pytest.raises(DivergedError):
        totals(uploads(1.0)).reduce(hear)


def hear(values: torch.Tensor) -> None:
    """The other rank says that it has diverged."""
    values += 1
