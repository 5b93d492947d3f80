"""A guard with an app behind it that answers at once, where Flower's would take its time: python … PORT."""

from __future__ import annotations

import sys
from typing import Any

from solera.deploy.edge.guard import Guard, listen


async def answer(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "http":
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})


if __name__ == "__main__":
    app: Any = answer
    listen(Guard(app, b"token", lambda key: False), port=int(sys.argv[1]), lifespan="off", log_config=None)
