"""The same before a server with work to do: many nodes at once, and what a run leaves on the disk."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress

import pytest
from attack import attack
from flwr.proto.fleet_pb2 import PullMessagesRequest
from flwr.proto.message_pb2 import PushObjectRequest
from flwr.proto.node_pb2 import Node
from served import SOLERA, Server, open_to_others, running, served
from strangers import ATTACKER, CUT_OFF, MB, PUSH, ask, command_of, connect, head, peak, public, signed

from commands import below, is_running, solera
from solera.deploy.common import flower
from solera.deploy.common.credential import read_token
from solera.deploy.operate.control import control

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with served(tmp_path_factory.mktemp("server")) as found:
        yield found


@attack(
    "lying node",
    "A registered node cannot fill the server's memory with many requests at once.",
    before="60 bodies of 19 MB took the server from 159 MB to 1329 MB",
)
def test_large_requests_of_a_registered_node(server, reached):
    before = peak(server.pid)
    headers = signed(server.keys / "nodes" / "node-1")
    with ExitStack() as stack:
        for _ in range(60):
            line = stack.enter_context(connect(server.address, ATTACKER, timeout=0.5))
            with suppress(OSError):  # the server stops reading
                line.sendall(head(PUSH, content_length=20 * MB, **headers) + bytes(19 * MB))
        assert server.serves()
    grown = peak(server.pid) - before
    assert grown < 300
    reached(f"{grown:.0f} MB")


def test_twenty_nodes_behind_one_address_are_not_in_the_way_of_each_other(server):
    """Two pieces of an array at once from each, and a look for messages, again and again."""
    key = server.keys / "nodes" / "node-1"
    with control(server.address, read_token(flower.home_of(server.folder))) as asked:
        (node,) = [each.node_id for each in asked._list() if each.public_key == public(key)]
    piece = PushObjectRequest(node=Node(node_id=node), object_content=bytes(5 * 2**20)).SerializeToString()
    look = PullMessagesRequest(node=Node(node_id=node)).SerializeToString()

    def take_part(_: int) -> list[int]:
        found = []
        for _ in range(3):
            found += [ask(server.address, PUSH, piece, **signed(key)) for _ in range(2)]
            found.append(ask(server.address, "/v1/fleet/pull-messages", look, **signed(key)))
        return found

    with ThreadPoolExecutor(40) as pool:
        answers = Counter(status for found in pool.map(take_part, range(40)) for status in found)
    assert answers.total() == 360
    assert not {CUT_OFF, 401, 413, 503} & answers.keys(), answers


@attack(
    "local program",
    "Files of a run and of a node are for their users alone, whatever the umask.",
    before="folders 0755; events, history, checkpoints and the logs of server and node 0644",
)
def test_files_of_a_run_and_of_a_node(server, world, reached):
    federation = world(masked=False)
    bundle, device = federation.bundle.path, federation.devices[100].path
    federation.devices[100].close()
    access = [
        "--superlink",
        str(server.address),
        "--ca",
        server.address.ca,
        "--key",
        server.keys / "nodes" / "node-1",
    ]
    with running(*SOLERA, "node", "start", device, *access, "--join") as node:
        assert node.stdout
        assert "takes part" in node.stdout.readline()
        run = ("--bundle", bundle, "--nodes", "1", "--rounds", "1")
        done = solera("federation", "run", server.folder, *run)
        assert done.returncode == 0, done.stderr
    names = {path.name for path in server.folder.rglob("*")}
    assert {"settings.json", "events.jsonl", "history.jsonl", "progress.json"} <= names
    found = [*server.folder.rglob("*"), device / "flower", *(device / "flower").rglob("*")]
    assert {"worker.log"} <= {path.name for path in found}
    assert open_to_others(found) == []
    reached("0700 and 0600")


def test_a_server_that_can_start_no_app_ends(server):
    """Last in the file: the others need the server."""
    (executor,) = [pid for pid in below(server.pid) if "solera.deploy.edge.executor" in command_of(pid)]
    os.kill(executor, signal.SIGKILL)
    until = time.monotonic() + 120
    while is_running(server.pid) and time.monotonic() < until:
        time.sleep(0.1)
    log = (flower.home_of(server.folder) / "superlink.log").read_text()
    assert "what starts the server's app has ended" in log.splitlines()[-1]
