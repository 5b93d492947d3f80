"""An edge at work: a node for the server, and a server for its members.

    python -m solera.deploy.operate.edge_serving --superlink HOST:PORT --ca ca.pem --key edge-1 --keys DIR

`solera edge start` does the same in its own process. It needs neither torch nor a device.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import uvicorn

from solera.core.errors import DeployError
from solera.deploy.common.authority import check_server
from solera.deploy.common.flower import Address
from solera.deploy.common.frames import LARGEST_AT_EDGE
from solera.deploy.common.json_log import current_round
from solera.deploy.common.protocol import Offer, Packet, Reason, RefusalError
from solera.deploy.common.relays import Greeting
from solera.deploy.edge import connections
from solera.deploy.edge.limits import Bounds, Limits
from solera.deploy.edge.signatures import is_signed
from solera.deploy.node.line import Line, read_key, trust
from solera.deploy.operate.edge_desk import Desk
from solera.deploy.operate.processes import check_port
from solera.deploy.operate.relaying import Relaying
from solera.deploy.operate.serving import answering, join_server, run_program, wait_for_server, write_line
from solera.deploy.server.patience import Patience

Tell = Callable[[str], None]
_START = 30.0  # seconds that the web server may take to listen


class Members(Protocol):
    """Whoever brings orders to the members."""

    def here(self) -> list[int]:
        """Members that are connected."""
        ...

    def carry(self, relaying: Relaying | None) -> None:
        """Hand out the orders of a relay from now on; of none, if it is over."""
        ...


class Edge:
    """Answers the server's messages with what the members say."""

    def __init__(self, members: Members) -> None:
        self._members = members
        self._patience = Patience(0.0)

    def answer(self, kind: str, packet: Packet) -> Packet:
        """The answer to an offer or a relay; nothing else is for an edge."""
        if kind == "enrol":
            offer = Offer.of(packet)
            greeting = Greeting(federation=offer.federation, here=sorted(self._members.here()))
            return Packet(greeting.model_dump())
        if kind != "relay":
            raise RefusalError(Reason.EDGE, "this node is an edge: it has no users of its own")
        relaying = Relaying(packet, self._members.here(), current_round())
        self._members.carry(relaying)
        try:
            relaying.wait(self._patience)
        finally:
            self._members.carry(None)
        return relaying.answer(self._members.here())


def serve_edge(keys: Path, listens: Address, server: Address, key: Path, tell: Tell) -> None:
    """Pass messages on until interrupted. Wait for a server that is not there yet."""
    check_server(keys)
    check_port(listens.host, listens.port)
    desk = Desk(keys, tell)
    with _listening(desk, keys, listens):
        wait_for_server(server, tell)
        line = Line(server, read_key(key), trusted=trust(server))
        edge = Edge(desk)
        try:
            join_server(line, key)
            tell(f"edge {line.node_id} takes part, for {len(desk)} members at {listens}; Ctrl-C ends it")
            for _ in answering(line, edge.answer):
                pass
        finally:
            line.leave()


@contextmanager
def _listening(desk: Desk, keys: Path, listens: Address) -> Iterator[None]:
    """Serve the members in a thread of its own."""
    connections.make_room(len(desk))
    bounds = Bounds.for_nodes(max(len(desk), 1))
    bounds = replace(
        bounds,
        requests=bounds.requests + 4 * len(desk),  # members wait for orders in a request
        bytes=2 * LARGEST_AT_EDGE,
        largest=LARGEST_AT_EDGE,
    )
    app = Limits(desk, bounds, lambda scope: is_signed(scope, desk.is_known))
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            host=listens.host,
            port=listens.port,
            ssl_certfile=keys / "server.pem",
            ssl_keyfile=str(keys / "server.key"),
            lifespan="off",
            log_level="warning",
            **connections.OPTIONS,
        )
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until = time.monotonic() + _START
    while not server.started:
        if not thread.is_alive() or time.monotonic() > until:
            raise DeployError(f"the edge cannot listen at {listens}", "give another --port")
        time.sleep(0.05)
    try:
        yield
    finally:
        server.should_exit = True
        thread.join(10)


def main() -> None:
    """Started by fleet.py and by tests."""
    parser = argparse.ArgumentParser(description="An edge of a federation.")
    parser.add_argument("--superlink", required=True)
    parser.add_argument("--ca", type=Path, required=True)
    parser.add_argument("--key", type=Path, required=True)
    parser.add_argument("--keys", type=Path, required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    given = parser.parse_args()
    server, here = Address.parse(given.superlink, given.ca), Address(given.host, given.port)
    run_program(lambda: serve_edge(given.keys, here, server, given.key, write_line))


if __name__ == "__main__":
    main()
