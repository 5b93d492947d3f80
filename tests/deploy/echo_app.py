"""An app that sends an array to every node and takes it back; or one that fails."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

server, failing, client = ServerApp(), ServerApp(), ClientApp()


@client.train()
def echo(message: Message, context: Context) -> Message:
    doubled = message.content["arrays"]["sent"].numpy() * 2
    who = ConfigRecord({"device": context.node_config["device"]})
    content = RecordDict({"arrays": ArrayRecord({"back": Array(doubled)}), "who": who})
    return Message(content, reply_to=message)


@server.main()
def main(grid: Grid, context: Context) -> None:
    sent = ArrayRecord({"sent": Array(np.arange(4.0))})
    messages = [
        Message(RecordDict({"arrays": sent}), dst_node_id=node, message_type="train")
        for node in grid.get_node_ids()
    ]
    replies = list(grid.send_and_receive(messages, timeout=60))
    line = {
        "round": 1,
        "rounds": 1,
        "clients": len(replies),
        "nodes": len(replies),
        "devices": sorted(reply.content["who"]["device"] for reply in replies),
        "back": [reply.content["arrays"]["back"].numpy().tolist() for reply in replies],
    }
    with (Path(str(context.run_config["folder"])) / "history.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")


@failing.main()
def fail(grid: Grid, context: Context) -> None:
    raise ValueError("the cat sat on the server")
