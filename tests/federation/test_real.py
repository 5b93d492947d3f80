"""The same outcome over real processes as in one; and what goes wrong there, one thing after the other."""

from __future__ import annotations

import os

import pytest
from real import RealFederation, people

from commands import environment
from solera.device.device import Device
from solera.federation.common.authority import make_keys
from solera.federation.server.folder import FederationFolder
from solera.methods import find

pytestmark = [
    pytest.mark.skipif("SOLERA_DATA" not in os.environ, reason="needs the data sets"),
    pytest.mark.xdist_group("real"),
]


@pytest.fixture(scope="module")
def data():
    return people()


@pytest.fixture(scope="module")
def many_keys(tmp_path_factory):
    folder = tmp_path_factory.mktemp("many")
    make_keys(folder, 8)
    return folder


@pytest.fixture
def federation(tmp_path, many_keys, key, data, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    made = []

    def make(method: str, users: list[int]) -> RealFederation:
        made.append(RealFederation(tmp_path, keys=many_keys, key=key, data=data, method=method, users=users))
        return made[-1]

    yield make
    for each in made:
        each.stack.close()


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fedmf", "fedem", "fedrap", "pfedclr"])
def test_equal_to_the_block_engine(federation, method):
    """150 users on three nodes, three rounds, TLS and keys."""
    made = federation(method, [50, 50, 50])
    made.start()
    made.prepare(rounds=3, min_nodes=3)
    made.run()
    asked = round(150 * find(method).config.clients_per_round)
    assert [entry["clients"] for entry in made.history] == [asked] * 3
    difference = made.difference_from_simulation(3)
    print(f"{method}: largest difference {difference:.2e}")
    assert difference < 1e-5
    taken = [(event["node"], event["sha256"]) for event in made.events if event["event"] == "taken"]
    assert len(taken) == 9
    for number, device in enumerate(made.devices, start=1):
        mine = [digest for node, digest in taken if node == made.nodes[number].node_id]
        assert [each["sha256"] for each in Device.open(device).outbox()][1:4] == mine  # after the enrolment


@pytest.mark.slow
def test_nodes_that_answer_wrongly_or_not_at_all(federation):
    """Six at once: each is refused for its own reason, and the others' users make the round."""
    faults = {
        2: ("shapes", {"shapes"}),
        3: ("nan", {"not-finite"}),
        4: ("undeclared", {"names"}),
        5: ("round", {"round"}),
        6: ("catalogue", {"catalogue"}),
        7: ("full disk", {"declined"}),
    }
    made = federation("fedmf", [3] * 8)
    for number, (fault, _) in faults.items():
        made.fault(number, fault)
    made.start()
    made.prepare(rounds=2, min_nodes=8, min_replies=0.1, deadline=150)
    made.run()
    assert [(entry["nodes"], entry["clients"]) for entry in made.history] == [(2, 6), (2, 6)]
    for number, (fault, reasons) in faults.items():
        assert made.reasons(number) == reasons, fault
    full = [e for e in made.events if e.get("node") == made.nodes[7].node_id and e["event"] == "rejected"]
    assert "could not answer, nor record that it did not" in full[0]["message"]  # its log says why


@pytest.mark.slow
def test_a_node_killed_in_mid_round_and_one_that_is_late(federation):
    made = federation("fedmf", [5, 5, 5])
    made.fault(2, "killed")
    made.fault(3, "late 60")
    made.start()
    made.prepare(rounds=2, min_nodes=1, min_replies=0.2, deadline=40)
    made.run()
    assert made.history[0]["clients"] == 5
    assert made.history[0]["rejected"] == {"no-reply": 2}
    assert "late" in made.reasons(3)
    assert "no-reply" in made.reasons(2)

    made.start_node(2)  # again
    FederationFolder.prepare(made.folder, None, {"rounds": 3, "min_nodes": 3, "deadline": 90.0}, resume=True)
    made.run()
    assert (made.history[-1]["round"], made.history[-1]["clients"]) == (3, 15)
