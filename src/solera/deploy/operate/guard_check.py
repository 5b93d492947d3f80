"""Check from outside that a newly started server refuses strangers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import httpx
from flwr.proto.control_pb2 import ListNodesRequest
from flwr.proto.fleet_pb2 import PullMessagesRequest
from flwr.proto.runtime_pb2 import AcquireTaskRequest
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supernode.fleet_http_client import FleetHttpClient

from solera.core.errors import DeployError
from solera.deploy.common.flower import Address


def check_guarded(address: Address, *, nodes_sign: bool) -> None:
    """Raise an error if the server answers requests without a token, secret or key."""
    access = partial(_access, address)
    try:
        with access(ControlHttpClient) as operator, access(RuntimeHttpClient) as program:
            _refused("an operator", partial(operator.ListNodes, ListNodesRequest()))
            _refused("a program", partial(program.AcquireTask, AcquireTaskRequest()))
        if nodes_sign:
            with access(FleetHttpClient) as node:
                _refused("a node", partial(node.PullMessages, PullMessagesRequest()))
    except httpx.TransportError as error:
        raise DeployError(
            f"the server at {address} no longer answers: {error}",
            "see its log, FOLDER/flower/superlink.log",
        ) from None


def _access(address: Address, client: Callable[..., Any]) -> Any:
    return client.from_server_address(  # type: ignore[attr-defined]
        server_address=str(address),
        insecure=address.ca is None,
        root_certificates=None if address.ca is None else address.ca.read_bytes(),
        interceptors=[RuntimeVersionHttpInterceptor(component_name="flwr CLI")],
    )


def _refused(who: str, ask: Callable[[], object]) -> None:
    try:
        ask()
    except httpx.HTTPStatusError as error:
        if error.response.status_code == httpx.codes.UNAUTHORIZED:
            return
    raise DeployError(
        f"the server was stopped because it did not ask {who} for a credential",
        "pip install 'solera[deploy]' installs a tested version of Flower",
    )
