"""A device's service as a person starts it, and requests to it as anybody may send them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import IO, Any, NamedTuple
from urllib.parse import urlsplit


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class OpenService(NamedTuple):
    folder: Path
    port: int
    token: str
    process: int
    name: str | None = None  # of the machine, in the link

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def ask(
        self,
        verb: str,
        path: str,
        body: Any = None,
        *,
        token: str | None = "",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send a request with the owner's token, another one, or none (None)."""
        sent = {} if token is None else {"Authorization": f"Bearer {token or self.token}"}
        content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(verb, path, content, sent | dict(headers or {}))
            answer = connection.getresponse()
            return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            connection.close()


@contextmanager
def opened(folder: Path, *options: str, errors: IO[bytes] | None = None) -> Iterator[OpenService]:
    """`solera device open` in a process of its own. `errors` is given what it complains of."""
    command = [sys.executable, "-m", "solera", "device", "open", str(folder), "--no-browser", "--json"]
    call = [*command, *options]
    with subprocess.Popen(call, stdout=subprocess.PIPE, stderr=errors, text=True) as process:
        try:
            assert process.stdout
            text = ""
            while not text.rstrip().endswith("}"):
                line = process.stdout.readline()
                assert line, "the service ended"
                text += line
            link = urlsplit(json.loads(text)["link"])
            token = link.fragment.removeprefix("token=")
            yield OpenService(folder, link.port or 0, token, process.pid, link.hostname)
        finally:
            process.terminate()
            process.wait(20)
