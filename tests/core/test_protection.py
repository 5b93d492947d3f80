"""A chain of protections: client halves in order, server halves in reverse."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from solera.core.leaf import Home, Leaf, Params
from solera.core.protection import Chain, RoundStep, Step
from solera.core.types import Ints
from solera.core.upload import Totals, Upload
from solera.data.ragged import Ragged
from solera.data.sampling import ClientData
from solera.engine import BlockTraining, Simulation
from solera.methods import build

LEAVES = (Leaf("items", (1,), Home.SHARED, per_item=True, upload=True),)


@dataclass(frozen=True)
class Scale(RoundStep, Step):
    """Multiplies uploads, and adds to the sums."""

    factor: float
    added: float
    dense: bool = False

    def memory(self) -> Params:
        return {f"scale {self.factor:g}": torch.tensor(self.factor)}

    def begin(self, round_: int, leaves: tuple[Leaf, ...], memory: Params) -> Scale:
        return self

    def send(self, clients: Ints, upload: Upload) -> Upload:
        changes = {name: value * self.factor + self.added for name, value in upload.changes.items()}
        return Upload(upload.rows, upload.row_counts, changes)

    def release(self, totals: Totals) -> Totals:
        return totals.covered(lambda sums: sums * self.factor + self.added, totals.weight)


def test_client_halves_run_in_order_and_server_halves_in_reverse():
    """(5 · 2 + 1) · 3 + 10 = 43 is sent; the server makes ((43 · 3 + 10) · 2) + 1 = 279 of it."""
    begun = Chain((Scale(2, 1), Scale(3, 10))).begin(0, LEAVES, {})
    one = torch.ones(1, dtype=torch.int64)
    sent = begun.send(np.array([7]), Upload(torch.tensor([0]), one, {"items": torch.tensor([[5.0]])}))
    assert float(sent.changes["items"]) == 43
    totals = Totals(LEAVES, 1, torch.device("cpu"))
    totals.add(sent)
    assert float(begun.release(totals).leaf("items")[0]) == 279
    assert set(begun.memory()) == {"scale 2", "scale 3"}


def test_an_empty_chain_changes_nothing():
    begun = Chain().begin(0, LEAVES, {})
    upload = Upload(torch.tensor([0]), torch.ones(1, dtype=torch.int64), {"items": torch.tensor([[5.0]])})
    assert begun.send(np.array([7]), upload) is upload
    assert not begun.given_up
    assert begun.memory() == Chain().memory() == {}
    assert Chain().choose(np.arange(3), 0) is None


def test_what_clients_keep_is_not_protected_and_what_they_send_is():
    histories = Ragged.from_lists([[0, 1], [2, 3, 4], [5]])
    data = ClientData(histories, histories, n_items=9)
    found = {}
    for name, chain in (("plain", Chain()), ("halved", Chain((Scale(0.5, 0),)))):
        method = build("fedmf", {"embedding_size": 3, "local_epochs": 2})
        simulation = Simulation(
            method, data, BlockTraining(1), seed=0, device=torch.device("cpu"), protection=chain
        )
        before = simulation.state.shared["items"].clone()
        simulation.run_round(0)
        found[name] = simulation.state.shared["items"] - before, simulation.state.personal.whole["user"]
    assert torch.equal(found["plain"][1], found["halved"][1])
    quarter = found["plain"][0] / 4  # once by the clients, once by the server
    torch.testing.assert_close(found["halved"][0], quarter, rtol=1e-4, atol=1e-7)


def test_a_step_that_gives_up_leaves_the_state_as_it_was():
    @dataclass(frozen=True)
    class GivesUp(Scale):
        given_up: bool = True

    histories = Ragged.from_lists([[0, 1], [2, 3, 4], [5]])
    data = ClientData(histories, histories, n_items=9)
    simulation = Simulation(
        build("fedmf"),
        data,
        BlockTraining(1),
        seed=0,
        device=torch.device("cpu"),
        protection=Chain((GivesUp(1, 0),)),
    )
    before = simulation.state.shared["items"].clone()
    simulation.run_round(0)
    assert torch.equal(simulation.state.shared["items"], before)
