"""Masked inputs that are added up on their way to the server."""

from __future__ import annotations

import numpy as np
import pytest

from solera.privacy.secagg import Client, Part, Server, make_setup, new_identity
from solera.privacy.secagg.messages import split_vector
from solera.privacy.secagg.server import MaskedSum

VALUES = [[1.0, 2.0], [10.0, -20.0], [100.0, 200.0], [1000.0, 0.5]]


class Parties:
    """Four clients that have sent their masked inputs, of whom three must stay."""

    def __init__(self) -> None:
        keys = [new_identity() for _ in VALUES]
        part = Part(name="values", length=2, clip=2000.0, fraction_bits=8)
        self.setup = make_setup(keys, 3, [part])
        self.clients = [Client(self.setup, number, key) for number, key in enumerate(keys)]
        self.server = Server(self.setup)
        sent = self.server.collect_keys([(n, c.advertise()) for n, c in enumerate(self.clients)])
        sent = self.server.collect_shares([(n, self.clients[n].share_keys(sent[n])) for n in sent])
        self.inputs = {n: c.mask(sent[n], {"values": VALUES[n]}) for n, c in enumerate(self.clients)}

    def added(self, *clients: int) -> MaskedSum:
        heads, vectors = zip(*(split_vector(self.inputs[n]) for n in clients), strict=True)
        total = sum(np.frombuffer(each, self.setup.encoding.dtype) for each in vectors)
        return MaskedSum(dict(zip(clients, heads, strict=True)), total.tobytes())

    def opened(self, sent: dict[int, bytes]) -> list[float]:
        sent = self.server.collect_confirmations([(n, self.clients[n].confirm(sent[n])) for n in sent])
        total = self.server.total([(n, self.clients[n].unmask(sent[n])) for n in sent])
        return total["values"].tolist()


@pytest.mark.parametrize("sums", [[(0, 1, 2, 3)], [(0, 2), (1, 3)], [(1, 2)], [(3,)]])
def test_sums_on_the_way_do_not_change_the_total(sums):
    parties = Parties()
    alone = [(n, data) for n, data in parties.inputs.items() if n not in {n for one in sums for n in one}]
    sent = parties.server.collect_masked(alone, [parties.added(*one) for one in sums])
    assert parties.opened(sent) == [1111.0, 182.5]


def test_a_client_that_is_in_no_sum_drops_out():
    parties = Parties()
    sent = parties.server.collect_masked([], [parties.added(0, 1, 2)])
    assert parties.opened(sent) == [111.0, 182.0]


@pytest.mark.parametrize("what", ["twice", "alone too", "another's", "too short", "vector"])
def test_a_sum_is_taken_whole_or_not_at_all(what):
    """Client 3 is in a sum that is not as it should be; those of the others are enough."""
    parties = Parties()
    alone = [(n, parties.inputs[n]) for n in (0, 1, 2)]
    good, bad = [], parties.added(3)
    if what == "twice":
        alone, good, bad = alone[:2], [parties.added(2)], parties.added(2, 3)
    elif what == "alone too":
        bad = parties.added(2, 3)
    elif what == "another's":
        bad = MaskedSum({3: parties.added(2).heads[2]}, bad.vector)
    elif what == "too short":
        bad = MaskedSum(bad.heads, bad.vector[:4])
    else:
        bad = MaskedSum({3: parties.inputs[3]}, bad.vector)
    sent = parties.server.collect_masked(alone, [*good, bad])
    assert sorted(sent) == [0, 1, 2]
    assert 3 in parties.server.refused
    assert parties.opened(sent) == [111.0, 182.0]
