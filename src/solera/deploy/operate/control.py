"""Control of a running SuperLink: list nodes, start runs, and follow them.

`flwr` does the same, and takes seconds to import each time.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from solera.core.errors import ConfigError, DeployError
from solera.deploy.common.authority import read_public_key
from solera.deploy.common.flower import Address

try:
    import httpx
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.serialization import load_der_public_key
    from flwr.common.serde import fab_to_proto, user_config_to_proto
    from flwr.proto.control_pb2 import (
        ListNodesRequest,
        ListRunsRequest,
        RegisterNodeRequest,
        StartRunRequest,
        StopRunRequest,
        StreamLogsRequest,
        UnregisterNodeRequest,
    )
    from flwr.proto.node_pb2 import NodeInfo
    from flwr.supercore.control import ControlHttpClient
    from flwr.supercore.fab import Fab
    from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
    from flwr.supercore.primitives.asymmetric import public_key_to_bytes
    from flwr.supercore.protobuf.client import ProtobufCall, ProtobufRequestContext

    from solera.deploy.common.retries import until_answered
except ImportError:
    raise ConfigError("a federation over a network needs Flower", "pip install 'solera[deploy]'") from None


_GONE = "unregistered"
_BUSY = 120.0  # seconds for which a busy server is asked again


@dataclass(frozen=True)
class Nodes:
    """Numbers of registered nodes and of nodes online."""

    registered: int
    online: int


@dataclass(frozen=True)
class Ending:
    """Status of a run: `how` is empty until it has ended, then completed, failed or stopped.

    `details` are those of the end; until then, why nothing is known.
    """

    how: str
    details: str


class Bearer:
    """Adds the server's token to every request."""

    def __init__(self, token: str) -> None:
        self._token = token

    def intercept(self, context: ProtobufRequestContext, call_next: ProtobufCall) -> httpx.Response:
        """Add the header."""
        context.request.headers["authorization"] = f"Bearer {self._token}"
        return call_next(context)


class Control:
    """Connection to one SuperLink."""

    def __init__(self, client: ControlHttpClient) -> None:
        self._client = client

    def nodes(self) -> Nodes:
        """The nodes the server knows."""
        known = [node.status for node in self._list() if node.status != _GONE]
        return Nodes(len(known), known.count("online"))

    def register(self, public_keys: list[Path]) -> list[Path]:
        """Make node keys known; returns those that were not."""
        known = {node.public_key for node in self._list()}
        new = [path for path in public_keys if _raw_key(path) not in known]
        for path in new:
            self._client.RegisterNode(RegisterNodeRequest(public_key=_raw_key(path), name=path.stem))
        return new

    def revoke(self, keys: Collection[str]) -> list[str]:
        """Exclude the nodes of public keys (DER, in base64) for good; return those registered until now."""
        here = {node.public_key: node.node_id for node in self._list() if node.status != _GONE}
        raw = {text: public_key_to_bytes(_parsed(text)) for text in keys}
        gone = [text for text in keys if raw[text] in here]
        for text in gone:
            self._client.UnregisterNode(UnregisterNodeRequest(node_id=here[raw[text]]))
        return gone

    def start(self, app: Path, config: dict[str, str]) -> int:
        """Run an app on the server and all nodes; returns the run's number."""
        from flwr.cli.build import build_fab_from_disk  # noqa: PLC0415 - seconds, for this one question

        fab = build_fab_from_disk(app)
        request = StartRunRequest(
            fab=fab_to_proto(Fab(hashlib.sha256(fab).hexdigest(), fab, {})),
            override_config=user_config_to_proto({**config}),
        )
        answer = self._client.StartRun(request)
        if not answer.HasField("run_id"):
            raise DeployError("the server did not accept the run", "see its log, FOLDER/flower/superlink.log")
        return int(answer.run_id)

    def ending(self, run: int) -> Ending:
        """Whether a run has ended, and how. A server that is too busy to answer has not ended it."""
        try:
            status = self._client.ListRuns(ListRunsRequest(run_id=run)).run_dict[run].status
        except httpx.HTTPError as error:
            if not _is_passing(error):
                raise
            return Ending("", f"the server does not answer for now: {error!r}")
        return Ending(status.sub_status, status.details) if status.status == "finished" else Ending("", "")

    def log(self, run: int) -> str:
        """What the server's app has written in a run that has ended."""
        parts = self._client.StreamLogs(StreamLogsRequest(run_id=run))
        return "".join(part.log_output for part in parts)

    def stop(self, run: int) -> None:
        """Stop a run."""
        self._client.StopRun(StopRunRequest(run_id=run))

    def stop_all(self) -> list[int]:
        """End all runs that have not ended; returns their numbers."""
        runs = self._client.ListRuns(ListRunsRequest()).run_dict
        under_way = [number for number, run in runs.items() if run.status.status != "finished"]
        for number in under_way:
            with suppress(httpx.HTTPStatusError):  # it has ended in the meantime
                self.stop(number)
        return under_way

    def _list(self) -> list[NodeInfo]:
        """All nodes. A server that many nodes join at once may not answer for a while."""
        return until_answered(
            lambda: list(self._client.ListNodes(ListNodesRequest()).nodes_info), _is_passing, _BUSY
        )


@contextmanager
def control(address: Address, token: str) -> Iterator[Control]:
    """A line to the SuperLink; when it breaks, an error that says so."""
    client = ControlHttpClient.from_server_address(
        server_address=str(address),
        insecure=address.ca is None,
        root_certificates=None if address.ca is None else address.ca.read_bytes(),
        interceptors=[RuntimeVersionHttpInterceptor(component_name="flwr CLI"), Bearer(token)],
    )
    try:
        yield Control(client)
    except httpx.HTTPStatusError as error:
        if error.response.status_code == httpx.codes.UNAUTHORIZED:
            raise DeployError(
                f"the server at {address} does not know the token in FOLDER/flower/control.token",
                "another server answers there: check the port, or restart this federation's server",
            ) from None
        raise DeployError(
            f"the server at {address} refused the request: {error.response.text}",
            "see its log, FOLDER/flower/superlink.log",
        ) from None
    except httpx.HTTPError as error:
        raise DeployError(
            f"the server at {address} no longer answers: {error}",
            "see its log, FOLDER/flower/superlink.log",
        ) from None
    finally:
        client.close()


def _is_passing(error: httpx.HTTPError) -> bool:
    """Whether the same question may be answered later. A server that is gone refuses connections."""
    if isinstance(error, httpx.HTTPStatusError):
        return error.response.is_server_error
    return isinstance(error, httpx.TransportError) and not isinstance(error, httpx.ConnectError)


def _parsed(text: str) -> EllipticCurvePublicKey:
    key = load_der_public_key(base64.b64decode(text))
    assert isinstance(key, EllipticCurvePublicKey)
    return key


def _raw_key(path: Path) -> bytes:
    return public_key_to_bytes(read_public_key(path))
