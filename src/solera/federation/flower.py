"""A federation on Flower, by its public API alone: an app for a stock SuperLink and stock SuperNodes.

The app is packaging/flower: `flwr run packaging/flower --run-config 'folder="films" bundle="films.bundle"'`.
What runs is the same as on the web transport: rounds, masks, checks and devices' policies know no transport.
A SuperNode is told its device, and for masked rounds its key and the authority's certificate:

    flower-supernode --superlink HOST:PORT --node-config 'device="me" key="nodes/node-1" ca="ca.pem"'
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from solera.core.errors import ConfigError, SoleraError
from solera.device.bundle import Bundle
from solera.dp.settings import DP
from solera.federation.common.authority import ROSTER_PUBLIC
from solera.federation.common.json_log import in_round
from solera.federation.common.packets import from_bytes, to_bytes
from solera.federation.common.protocol import Packet, Reason, RefusalError, declined
from solera.federation.common.settings import Settings
from solera.federation.node.membership import pin
from solera.federation.node.worker import answer
from solera.federation.secure.roster import ROSTER, read_roster, read_roster_key
from solera.federation.server.folder import FederationFolder
from solera.federation.server.loop import run_federation
from solera.federation.server.network import Answered

try:
    from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp
except ImportError:
    raise ConfigError("a federation on Flower needs flwr", "pip install 'solera[flower]'") from None

ANSWERS = "answers"  # the one kind of message: which of Solera's it is stands in it
_PACKET, _KIND, _STYLE = "packet", "kind", "solera.packet"
_OTHERS = ("folder", "bundle", "keys", "dp")  # of a run's configuration: not settings


class FlowerNetwork:
    """The nodes of a Flower run."""

    def __init__(self, grid: Grid) -> None:
        self._grid = grid
        self._asked: set[str] = set()

    def online(self) -> set[int]:
        """Numbers of the nodes that are there."""
        return set(self._grid.get_node_ids())

    def send(self, kind: str, packets: Mapping[int, Packet], seconds: float, round_: str) -> dict[str, int]:
        """Push a message to each node."""
        messages = [
            Message(to_content(kind, packet), node, f"query.{ANSWERS}", ttl=seconds, group_id=round_)
            for node, packet in packets.items()
        ]
        names = dict(zip(self._grid.push_messages(messages), packets, strict=True))
        names.pop("", None)  # not sent
        self._asked |= names.keys()
        return names

    def answers(self) -> list[Answered]:
        """Pull what has come."""
        found = [_answered(message) for message in self._grid.pull_messages(list(self._asked))]
        self._asked -= {each.name for each in found}
        return found


def _answered(message: Message) -> Answered:
    name = message.metadata.reply_to_message_id
    try:
        if message.has_error():
            raise RefusalError(Reason.FAILED, str(message.error.reason)[:500])
        _, packet = from_content(message.content)
    except RefusalError as error:
        return Answered(name, error)
    return Answered(name, packet, packet.size)


def to_content(kind: str, packet: Packet) -> RecordDict:
    """A packet as Flower's content: one array of bytes, which Flower sends in pieces where it is large."""
    data = to_bytes(packet)
    array = Array("uint8", (len(data),), _STYLE, data)
    return RecordDict({_PACKET: ArrayRecord({_PACKET: array}), _KIND: ConfigRecord({_KIND: kind})})


def from_content(content: RecordDict) -> tuple[str, Packet]:
    """Both again, or from a stranger."""
    packet, kind = content.get(_PACKET), content.get(_KIND)
    if not isinstance(packet, ArrayRecord) or not isinstance(kind, ConfigRecord) or len(content) != 2:
        raise RefusalError(Reason.NAMES, "not declared: other records")
    array = packet.get(_PACKET)
    if array is None or len(packet) != 1 or array.stype != _STYLE or set(kind) != {_KIND}:
        raise RefusalError(Reason.NAMES, "not declared: other arrays, or fields beside the packet")
    return str(kind[_KIND]), from_bytes(array.data)


server_app, client_app = ServerApp(), ClientApp()


@server_app.main()
def serve(grid: Grid, context: Context) -> None:
    """Start or continue the federation in the folder that the run names."""
    given = dict(context.run_config)
    folder = prepared(given)
    run_federation(FlowerNetwork(grid), folder.path, lambda entry: print(json.dumps(entry)))  # noqa: T201 - Flower's log


def prepared(given: Mapping[str, Any]) -> FederationFolder:
    """The federation that a run's configuration describes: created, or continued with its settings."""
    if not given.get("folder"):
        raise ConfigError("the run names no folder", "flwr run … --run-config 'folder=\"films\" bundle=…'")
    path = Path(str(given["folder"]))
    settings = {
        name.replace("-", "_"): value for name, value in given.items() if name not in _OTHERS and value != ""
    }
    if unknown := settings.keys() - Settings.model_fields.keys():
        raise ConfigError(f"{', '.join(sorted(unknown))}: no setting of a federation", "see docs/federation")
    if given.get("dp"):
        settings["dp"] = DP.parse(str(given["dp"]))
    bundle = Bundle.open(Path(str(given["bundle"]))) if given.get("bundle") else None
    federation = FederationFolder.prepare(path, bundle, settings, resume=FederationFolder(path).exists)
    if given.get("keys"):
        keys = Path(str(given["keys"]))
        federation.keep_roster(read_roster(keys / ROSTER, read_roster_key(keys / ROSTER_PUBLIC)))
    return federation


_ONE = threading.Lock()  # a device answers one message at a time


@client_app.query(ANSWERS)
def answers(message: Message, context: Context) -> Message:
    """What the node's device answers."""
    config = context.node_config
    with _ONE, in_round(message.metadata.group_id):
        try:
            kind, packet = from_content(message.content)
            device = Path(str(config["device"]))
            if "key" in config:
                pin(device, Path(str(config["key"])), Path(str(config["ca"])), None)
            reply = answer(kind, packet, device)
        except KeyError as missing:
            raise ConfigError(
                f"the node's configuration lacks {missing}", "--node-config 'device=\"me\"'"
            ) from None
        except RefusalError as error:
            kind, reply = "", declined(error.message)
        except SoleraError:  # its words may name files of this device
            kind, reply = "", declined("this node could not answer; its log says why")
    return Message(to_content(kind, reply), reply_to=message)
