"""Where members of an edge connect."""

from __future__ import annotations

import asyncio
import base64
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from flwr.common.constant import TIMESTAMP_HEADER
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER
from flwr.supercore.date import now
from flwr.supercore.primitives.asymmetric import public_key_to_bytes, sign_message

import in_process
from solera.core.errors import DeployError
from solera.deploy.common.envelopes import Exchange
from solera.deploy.common.frames import GIVE, TAKE, unpack
from solera.deploy.common.protocol import Packet
from solera.deploy.node.line import read_key
from solera.deploy.operate.edge_desk import Desk
from solera.deploy.operate.relaying import Relaying
from solera.deploy.server.edges import _relay
from solera.deploy.server.patience import Patience
from solera.privacy.secagg import new_identity


@pytest.fixture
def desk(five_keys, tmp_path) -> Desk:
    (tmp_path / "nodes").mkdir()
    for place in (1, 2):
        shutil.copy(five_keys / "nodes" / f"node-{place}.pub", tmp_path / "nodes")
    return Desk(tmp_path, lambda text: None)


def signed(five_keys, place: int) -> list[tuple[bytes, bytes]]:
    key, stamp = read_key(five_keys / "nodes" / f"node-{place}"), now().isoformat()
    headers = {
        FLEET_HTTP_PUBLIC_KEY_HEADER: base64.b64encode(public_key_to_bytes(key.public_key())).decode(),
        FLEET_HTTP_SIGNATURE_HEADER: base64.b64encode(sign_message(key, stamp.encode())).decode(),
        TIMESTAMP_HEADER: stamp,
    }
    return [(name.lower().encode(), value.encode()) for name, value in headers.items()]


@pytest.fixture
def call(desk) -> Iterator[Callable[..., tuple[int, bytes]]]:
    """Sends a request to the desk; all of them in one loop."""
    with asyncio.Runner() as runner:

        def called(path: str, headers: Any = (), body: bytes = b"") -> tuple[int, bytes]:
            sent: list[Any] = []

            async def receive() -> dict[str, Any]:
                return {"type": "http.request", "body": body, "more_body": False}

            async def send(message: Any) -> None:
                sent.append(message)

            scope = {"type": "http", "method": "POST", "path": path, "headers": list(headers)}
            runner.run(desk({**scope, "query_string": b"", "server": ("edge", 1)}, receive, send))
            return sent[0]["status"], b"".join(each.get("body", b"") for each in sent[1:])

        yield called


def relaying(desk: Desk) -> Relaying:
    orders = {number: Packet({"federation": 32 * "0"}) for number in desk.here()}
    made = _relay(Exchange("", new_identity(), 1), "train", orders, [], seconds=0.1, wait=0.0)
    return Relaying(made, desk.here())


def test_members_alone_are_answered(call, five_keys):
    assert call("/health")[0] == 200
    assert call(TAKE)[0] == 401
    assert call(TAKE, signed(five_keys, 3))[0] == 401
    assert call(TAKE, signed(five_keys, 1)) == (200, b"")
    assert call("/v1/fleet/get-run", signed(five_keys, 1))[0] == 404
    assert call(GIVE, signed(five_keys, 1), b"no message")[0] == 400


def test_an_order_is_given_until_it_is_answered(desk, call, five_keys):
    for place in (1, 2):
        call("/v1/fleet/activate-node", signed(five_keys, place))
    assert len(desk.here()) == 2
    under_way = relaying(desk)
    desk.carry(under_way)
    for _ in range(2):  # the first may have got lost
        head, parts = unpack(call(TAKE, signed(five_keys, 1))[1])
        assert head and parts
    first = next(iter(desk.here()))
    under_way.take(first, Packet({}, {"box": np.zeros(3, np.uint8)}))
    assert call(TAKE, signed(five_keys, 1)) == (200, b"")
    call("/v1/fleet/deactivate-node", signed(five_keys, 2))
    assert desk.here() == [first]
    under_way.wait(Patience(0.0))  # for nobody
    assert under_way.answer(desk.here()).fields["boxes"] == {str(first): 3}


def test_a_folder_without_members(tmp_path):
    with pytest.raises(DeployError, match="no keys of members"):
        Desk(tmp_path, lambda text: None)


def test_a_node_behind_an_edge_needs_keys(tmp_path):
    done = in_process.solera(
        "node", "start", tmp_path, "--superlink", "h:1", "--insecure", "--server-ca", "ca.pem"
    )
    assert done.returncode != 0
    assert "--server-ca needs --ca and --key" in done.stderr
