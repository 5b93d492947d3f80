"""An app that only sends bytes to the nodes of a fleet and back: the cost of Flower itself.

It makes its messages as Flower's own examples do, of arrays, and looks for replies as often as Solera's app.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

TYPE = "query.echo"
_BACK, _PLAN, _ARRAYS = "back", "plan", "arrays"
_POLL = 0.25  # seconds between looks for replies
_PATIENCE = 300.0  # seconds for one exchange
server = ServerApp()


def content(size: int, back: int, seed: int) -> RecordDict:
    """As many bytes; and how many are to come back."""
    values = np.random.default_rng(seed).integers(0, 256, size, np.uint8)  # never the same: that is sent once
    return RecordDict({_ARRAYS: ArrayRecord({"values": Array(values)}), _PLAN: ConfigRecord({_BACK: back})})


def echo(message: Message, seed: int) -> Message:
    """A node's answer."""
    plan = message.content[_PLAN]
    assert isinstance(plan, ConfigRecord)
    return Message(content(int(str(plan[_BACK])), 0, seed), reply_to=message)


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Write one line for every round."""
    folder = Path(str(context.run_config["folder"]))
    plan: dict[str, Any] = json.loads((folder / "echo.json").read_text(encoding="utf-8"))
    nodes = sorted(grid.get_node_ids())[: plan["nodes"]]
    for round_ in range(plan["rounds"]):
        began, answered = time.monotonic(), []
        for place, (down, up) in enumerate(plan["exchanges"]):
            sent = content(down, up, 100 * round_ + place)
            waiting = set(grid.push_messages([Message(sent, node, TYPE) for node in nodes]))
            until = time.monotonic() + _PATIENCE
            while waiting and time.monotonic() < until:
                time.sleep(_POLL)
                waiting -= {m.metadata.reply_to_message_id for m in grid.pull_messages(list(waiting))}
            answered.append(len(nodes) - len(waiting))
        line = {"round": round_ + 1, "nodes": answered, "seconds": round(time.monotonic() - began, 3)}
        with (folder / "echoes.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
