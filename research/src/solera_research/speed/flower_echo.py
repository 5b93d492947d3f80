"""An app that only sends arrays to the nodes and back, to measure Flower's own cost."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

PLAN = "echo.json"  # rounds, and how many bytes go down to and up from every node
server, client = ServerApp(), ClientApp()


def _content(size: int, back: int, round_: int) -> RecordDict:
    values = np.random.default_rng(round_).random(size // 4, np.float32)  # never the same: that is sent once
    return RecordDict(
        {"arrays": ArrayRecord({"values": Array(values)}), "plan": ConfigRecord({"back": back})}
    )


@client.train()
def echo(message: Message, context: Context) -> Message:
    """Reply with the requested number of bytes."""
    plan = message.content["plan"]
    assert isinstance(plan, ConfigRecord)
    back = plan["back"]
    assert isinstance(back, int)
    return Message(_content(back, 0, context.node_id % 1000), reply_to=message)


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Rounds as Flower's own loop makes them, one line of history each."""
    folder = Path(str(context.run_config["folder"]))
    plan = json.loads((folder / PLAN).read_text(encoding="utf-8"))
    for round_ in range(plan["rounds"]):
        began = time.monotonic()
        messages = [
            Message(_content(plan["down"], plan["up"], round_), node, "train") for node in grid.get_node_ids()
        ]
        replies = list(grid.send_and_receive(messages, timeout=300))
        line = {
            "round": round_ + 1,
            "rounds": plan["rounds"],
            "nodes": sum(reply.has_content() for reply in replies),
            "seconds": time.monotonic() - began,
        }
        with (folder / "history.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
