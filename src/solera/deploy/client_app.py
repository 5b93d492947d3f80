"""The app that Flower runs on a node: it opens the device, answers one message, and closes it again."""

from __future__ import annotations

from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import Mod

from solera.core.errors import SoleraError
from solera.deploy.messages import TYPES, from_content, to_content
from solera.deploy.protocol import declined


def device_folder(context: Context) -> Path:
    """Where the node's device is: the node knows, or (simulated) it is one of the federation's own."""
    given = context.node_config.get("device")
    if given is not None:
        return Path(str(given))
    return Path(str(context.run_config["folder"])) / "nodes" / str(context.node_config["partition-id"])


def answer(kind: str, message: Message, context: Context) -> Message:
    """The node's reply to one message."""
    from solera.deploy.node import Node  # noqa: PLC0415 - torch is not needed to be loaded as an app
    from solera.device.device import Device  # noqa: PLC0415

    try:
        device = Device.open(device_folder(context))
        try:
            reply = Node(device).answer(kind, from_content(message.content))
        finally:
            device.close()
    except SoleraError as error:
        reply = declined(error.message)
    return Message(to_content(reply), reply_to=message)


def make_app(mods: list[Mod] | None = None) -> ClientApp:
    """The app, with whatever is to stand between it and the network."""
    made = ClientApp(mods=mods)
    for kind, type_ in TYPES.items():
        family, action = type_.split(".")

        def work(message: Message, context: Context, kind: str = kind) -> Message:
            return answer(kind, message, context)

        getattr(made, family)(action)(work)
    return made


app = make_app()
