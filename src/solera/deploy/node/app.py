"""The app that Flower runs on a node, in its simulation engine or under its own node program."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import Mod

from solera.deploy.common.messages import TYPES, from_content, to_content
from solera.deploy.common.protocol import RefusalError, declined
from solera.deploy.node.answers import answer


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
            try:
                reply = answer(kind, from_content(message.content), device_of(context))
            except RefusalError as error:
                reply = declined(error.message)
            return Message(to_content(reply), reply_to=message)

        getattr(made, family)(action)(work)
    return made


app = make_app()
