"""The server of a federation: workers that share one socket, and the process that keeps them running.

python -m solera.federation.web.serve FOLDER --fd NUMBER …    one worker, started by `serve`
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import socket
import ssl
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette

from solera.federation.common.json_log import log_as_json
from solera.federation.common.private_files import private_files
from solera.federation.web.app import Serving, make_app
from solera.federation.web.limits import Impatient

_LOOK = 5.0  # seconds between looks for a new certificate
_ENDING = 10  # seconds that a worker's requests may take when it is to end


def worker(serving: Serving, descriptor: int, *, tls: bool) -> list[str]:
    """The command of one worker."""
    command = [sys.executable, "-m", "solera.federation.web.serve", str(serving.folder)]
    command += ["--fd", str(descriptor), "--every", str(serving.every), *(["--tls"] if tls else [])]
    return command if serving.keys is None else [*command, "--keys", str(serving.keys)]


def bound(host: str, port: int, path: Path | None) -> socket.socket:
    """The socket that workers share: a port, or a file for nginx on the same machine."""
    if path is not None:
        path.unlink(missing_ok=True)
        found = socket.socket(socket.AF_UNIX)
        found.bind(str(path))
        path.chmod(0o666)  # its folder says who may come in
    else:
        found = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
    found.listen(2048)
    found.set_inheritable(True)
    return found


def run(serving: Serving, shared: socket.socket, *, tls: bool) -> None:
    """One worker, until it is asked to end."""
    app = make_app(serving)
    certificate = None if serving.keys is None or not tls else serving.keys / "server.pem"
    config = uvicorn.Config(
        app,
        http=Impatient,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_ENDING,
        timeout_keep_alive=75,  # longer than nginx keeps a connection to its upstream
        backlog=2048,
        ssl_certfile=certificate,
        ssl_keyfile=None if certificate is None else certificate.with_suffix(".key"),
        forwarded_allow_ips="",
    )
    config.load()
    if certificate is not None and config.ssl is not None:
        _renewing(app, config.ssl, certificate)
    server = uvicorn.Server(config)
    app.state.worker.is_ending = lambda: server.should_exit
    _follow_parent(server)
    server.run([shared])  # on uvloop, where it is installed


def _renewing(app: Starlette, context: ssl.SSLContext, certificate: Path) -> None:
    """Let new connections see a certificate that was replaced, without a restart."""
    inner = app.router.lifespan_context

    async def look() -> None:
        known = certificate.stat().st_mtime_ns
        while True:
            await asyncio.sleep(_LOOK)
            try:
                found = certificate.stat().st_mtime_ns
                if found != known:
                    context.load_cert_chain(certificate, certificate.with_suffix(".key"))
                    known = found
                    logging.getLogger("solera.server").info("a new certificate is shown")
            except (OSError, ssl.SSLError) as error:  # half written, or gone: the former goes on
                logging.getLogger("solera.server").warning("the new certificate is not taken: %s", error)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[Any]:
        task = asyncio.create_task(look())
        async with inner(app) as state:
            yield state
        task.cancel()

    app.router.lifespan_context = lifespan


def _follow_parent(server: uvicorn.Server) -> None:
    """End when the process that keeps workers running is gone, however that came."""
    parent = os.getppid()

    def watch() -> None:
        wait = threading.Event()
        while os.getppid() == parent:
            wait.wait(1.0)
        server.should_exit = True

    threading.Thread(target=watch, daemon=True).start()


def main() -> None:
    """Started by server.py."""
    parser = argparse.ArgumentParser(description="A worker of a federation's server.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--keys", type=Path)
    parser.add_argument("--every", type=float, required=True)
    parser.add_argument("--tls", action="store_true")
    given = parser.parse_args()
    log_as_json()
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # of a terminal that closes: the parent decides
    serving = Serving(given.folder, os.environ["SOLERA_DATABASE"], given.keys, given.every)
    with private_files():
        run(serving, socket.socket(fileno=given.fd), tls=given.tls)


if __name__ == "__main__":
    main()
