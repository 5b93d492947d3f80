"""The app that Flower runs on a node: it opens the device, answers one message, and closes it again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import Mod

from solera.core.errors import SoleraError
from solera.deploy.common.messages import TYPES, from_content, to_content
from solera.deploy.common.protocol import declined


def answer(kind: str, message: Message, folder: Path) -> Message:
    """The reply of the node whose device is in the folder."""
    from solera.deploy.node.masked_round import open_node  # noqa: PLC0415 - torch is not needed to be loaded as an app
    from solera.device.device import Device  # noqa: PLC0415

    try:
        device = Device.open(folder)
        try:
            reply = open_node(device).answer(kind, from_content(message.content))
        finally:
            device.close()
    except SoleraError as error:
        reply = declined(error.message)
    return Message(to_content(reply), reply_to=message)


def _device_of_node(context: Context) -> Path:
    return Path(str(context.node_config["device"]))


def make_app(
    mods: list[Mod] | None = None, device_of: Callable[[Context], Path] = _device_of_node
) -> ClientApp:
    """The app, with whatever is to stand between it and the network, and where to find a node's device."""
    made = ClientApp(mods=mods)
    for kind, type_ in TYPES.items():
        family, action = type_.split(".")

        def work(message: Message, context: Context, kind: str = kind) -> Message:
            return answer(kind, message, device_of(context))

        getattr(made, family)(action)(work)
    return made


def app_of(device: Path) -> ClientApp:
    """The app of a node whose device is in that folder."""
    return make_app(device_of=lambda context: device)


app = make_app()
