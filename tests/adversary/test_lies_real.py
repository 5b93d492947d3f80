"""Lies over a real server with TLS, among real nodes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from afterwards import entries
from attack import attack
from lying_rounds import Lying
from real_nodes import RealNodes

from commands import environment
from solera.core.errors import RunError
from solera.device.ledger import Stage
from solera.federation.server import masked_round
from solera.federation.server.folder import FederationFolder

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("real")]
NODES = 4


@pytest.fixture(scope="module")
def federation(publisher_key: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealNodes]:
    made = RealNodes(tmp_path_factory.mktemp("lies"), publisher_key, NODES)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PYTHONPATH", environment()["PYTHONPATH"])
        patched.setenv("OMP_NUM_THREADS", "1")
        with made.running("lying_node:answers_of"):
            made.begin(rounds=1, attempts=2, deadline=60)
            yield made


def farthest(federation: RealNodes) -> list[int]:
    """How far each node has come in any masked round."""
    return [max(entry["stage"] for entry in entries(home)) for home in federation.homes]


@attack(
    "lying server",
    "No node can be given other terms than the rest of its cohort, also over a real server with TLS.",
    before="opened sum equal to the victim's upload to 7e-12; history read exactly",
)
def test_a_clip_that_silences_all_but_one(federation, reached):
    with pytest.MonkeyPatch.context() as patched, pytest.raises(RunError, match="too few replies"):
        patched.setattr(masked_round, "MaskedRound", Lying)
        federation.run()
    said = [line for line in federation.lines("events.jsonl") if line["event"] == "rejected"]
    assert {line["reason"] for line in said} == {"declined"}
    by_attempt = [{line["node"] for line in said if line["attempt"] == attempt} for attempt in (0, 1)]
    # No value could be sent under the first clip: those who got it say so. Under the second, keys do not fit.
    assert list(map(len, by_attempt)) == [NODES - 1, NODES]
    assert farthest(federation) == [Stage.ADVERTISED] * NODES
    assert federation.lines("openings.jsonl") == []
    federation.run()  # the same nodes, by a server that does not lie
    assert farthest(federation) == [Stage.REVEALED] * NODES
    reached("declined by all, nothing opened")


@attack(
    "lying node",
    "One node with wrong shares cannot void a masked round over a real server either; it is named.",
    before="every masked round void, culprit unknown",
)
def test_a_wrong_share(federation, reached):
    liar = federation.homes[-1]
    (liar / "lie").touch()
    before = len(federation.lines("events.jsonl"))
    FederationFolder(federation.folder).change({"rounds": 2})
    federation.run()
    said = [line for line in federation.lines("events.jsonl")[before:] if line["event"] == "rejected"]
    assert [line["reason"] for line in said] == ["faulty"]
    (named,) = {line["node"] for line in said}
    assert named in (liar / "network" / "node.log").read_text()
    assert federation.lines("history.jsonl")[-1]["round"] == 2
    reached("round counts; the liar is named")
