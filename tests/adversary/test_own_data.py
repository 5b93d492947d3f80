"""What a person has on this machine: others read it, keep it, or keep the person from it."""

from __future__ import annotations

import csv
import io
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlencode

import numpy as np
import pytest
from attack import attack

pytest.importorskip("starlette", reason="needs the page extra")
pytest.importorskip("uvicorn", reason="needs the page extra")

import uvicorn

from in_process import solera
from open_service import OpenService, opened
from solera.data.interactions import Interactions
from solera.device.bundle import Bundle, Item
from solera.device.device import Device
from solera.device.page import write_page
from solera.device.publish import export, start
from solera.runs import RunConfig, train
from solera.service.app import service as make_app
from solera.service.guard import Place

WEB = Path(__file__).parents[2] / "web"
SECRET = "My Very Secret Film"
FILMS = f"title,time\n{SECRET},2024-01-01\nFilm 3,2024-01-02\n"
UPLOAD = "/page/imports?" + urlencode(
    {"name": "films.csv", "columns": json.dumps({"title": "title", "time": "time"})}
)
CONNECTIONS = 120
FORMULAS = [
    *('=HYPERLINK("http://evil.example","x")', "+cmd|' /C calc'!A0", "-2+3", "@Home", "'=Fargo", "''@Sea"),
    *("Film; the sequel;=Ten", "'Til There Was You", "Plain"),
]


@pytest.fixture
def folder(device) -> Path:
    """Of a device with a short history."""
    device.add_all([("5", 1), ("7", 2)], "me", "test")
    device.close()
    return device.path


def wait_for(service: OpenService, job: dict) -> dict:
    until = time.monotonic() + 60
    while job["state"] == "reading" and time.monotonic() < until:
        time.sleep(0.05)
        job = service.ask("GET", f"/page/imports/{job['number']}").json
    return job


def uploads(folder: Path) -> list[Path]:
    return list(folder.glob("device.db-import-*/*"))


def all_bytes(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


@attack(
    "local program",
    "*Delete everything* overwrites and deletes the uploaded export, and nothing tells its titles any more.",
    before="the export stayed on the disk as it was, and the page still told its titles",
)
def test_the_upload_is_deleted_with_everything(folder, reached):
    """Before: `My Very Secret Film` in device.db-import-…/films.csv, and in the answer about the import."""
    with opened(folder) as service:
        job = wait_for(service, service.ask("POST", UPLOAD, FILMS.encode()).json)
        path = f"/page/imports/{job['number']}"
        (upload,) = uploads(folder)
        with upload.open("rb") as held:
            assert SECRET.encode() in held.read()  # both could be read
            assert SECRET.encode() in service.ask("GET", path).body
            assert service.ask("DELETE", "/page/everything").json == {"forgotten": 3}
            held.seek(0)
            assert not held.read().strip(b"\0")
        assert not list(folder.glob("device.db-import-*"))
        assert SECRET.encode() not in all_bytes(folder)
        told, unknown = service.ask("GET", path), service.ask("GET", "/page/imports/999")
        assert (told.status, told.json["error"]) == (unknown.status, "there is no import 1")
        assert service.ask("POST", f"{path}/matches", {"matches": []}).status == unknown.status
        assert service.ask("GET", "/page/history").json == []
    reached("overwritten and deleted; the page answers as if there had been no import")


@attack(
    "local program",
    "*Delete everything* ends an import under way: none of its entries is stored afterwards.",
    before="the import went on, and stored 299,999 entries after everything was deleted",
)
def test_an_import_under_way_is_ended(folder, reached):
    """Before: no entry right after the answer, and 299,999 some seconds later."""
    many = f"title,time\n{SECRET},1\n" + "".join(f"Film 3,{second}\n" for second in range(1, 300_000))
    with opened(folder) as service, socket.create_connection(("127.0.0.1", service.port), timeout=60) as slow:
        lines = (f"POST {UPLOAD} HTTP/1.1", f"Host: {service.host}", f"Authorization: Bearer {service.token}")
        slow.sendall("\r\n".join((*lines, f"Content-Length: {len(FILMS)}", "", FILMS[:-9])).encode())
        while not uploads(folder):
            time.sleep(0.01)
        service.ask("DELETE", "/page/everything")
        slow.sendall(FILMS[-9:].encode())
        assert b" 202 " in slow.recv(1 << 16)  # the rest came, and was for nothing
        time.sleep(0.5)  # until it has failed, because there is one import at a time
        job = service.ask("POST", UPLOAD, many.encode()).json
        assert service.ask("GET", f"/page/imports/{job['number']}").json["state"] == "reading"
        service.ask("DELETE", "/page/everything")
        assert service.ask("GET", "/page/history").json == []
        assert not list(folder.glob("device.db-import-*"))
        job = wait_for(service, service.ask("POST", UPLOAD, FILMS.encode()).json)
        assert job["report"]["added"] == 1  # and only then; another import works
        assert len(service.ask("GET", "/page/history").json) == 1
    reached("it ends, and nothing of it is stored")


@attack(
    "crash",
    "`solera device forget` deletes the upload of a service that was killed.",
    before="the export stayed until the next import",
)
def test_the_upload_of_a_killed_service(folder, reached):
    """Before: device.db-import-…/films.csv was still there after `solera device forget --all`."""
    with opened(folder) as service:
        wait_for(service, service.ask("POST", UPLOAD, FILMS.encode()).json)
        os.kill(service.process, signal.SIGKILL)
    assert SECRET.encode() in all_bytes(folder)
    assert solera("device", "forget", folder, "--all", "--yes").returncode == 0
    assert SECRET.encode() not in all_bytes(folder)
    assert not list(folder.glob("device.db-import-*"))
    reached("overwritten and deleted")


@attack(
    "file",
    "Who opens the page from the disk is told that other files can read its history, and can keep nothing.",
    before="any other HTML file read the history, and the page did not say so",
)
@pytest.mark.skipif(not any(map(shutil.which, ("chromium", "google-chrome"))), reason="needs Chromium")
@pytest.mark.skipif(not (WEB / "node_modules").is_dir(), reason="needs `npm ci` in web/")
def test_another_file_of_the_disk(publisher_key, tmp_path, reached):
    """Before: `[{"number":1,"item":"0",...}]` in Chromium, whatever the owner did."""
    films = {str(item): f"Film {item}" for item in range(8)}
    users, items = np.divmod(np.arange(48), 6)
    ids = [str(item) for item in (items + users) % 8]
    data = Interactions.from_columns("small", [f"u{user}" for user in users], ids, np.arange(48), films)
    config = RunConfig(method="fedslist", dataset="small", rounds=1)
    run = train(config, data, out=tmp_path / "run", threads=1)
    assert run.path
    export(run.path, tmp_path / "b.bundle", publisher_key, data=data)
    page = write_page(Bundle.open(tmp_path / "b.bundle"), tmp_path / "page")
    other = tmp_path / "mail" / "other.html"
    other.parent.mkdir()
    command = ["node", "tests/other_file.mjs", str(page), "Film 2", str(other)]
    done = subprocess.run(command, cwd=WEB, capture_output=True, text=True, timeout=120, check=True)
    read = json.loads(done.stdout)
    assert [each["item"] for each in read["kept"]["found"]] == ["2"]  # without the choice, it reads
    assert "any HTML file that you open from your disk can read what such pages keep" in read["said"]
    assert read["nothing"] == {"found": [], "databases": 0}
    reached("the page says it; if its owner keeps nothing, there is nothing to read")


@attack(
    "stranger",
    "An exported history has no cell that a spreadsheet takes for a formula, and is read back as it was.",
    before="a title `=HYPERLINK(…)` of a catalogue was a formula in history.csv",
)
def test_formulas_in_an_exported_history(publisher_key, tmp_path, reached):
    """Before: `=HYPERLINK`, `@Home`, `+cmd|' /C calc'!A0` and `-2+3` as first characters of cells."""
    films = [Item(f"-{number}", title, None) for number, title in enumerate(FORMULAS)]
    bundle = start("fedease", films, tmp_path / "films.bundle", publisher_key, options={})
    device = Device.create(tmp_path / "me", bundle)
    device.add_all([(item.id, None) for item in films], "me", "=test")
    device.close()
    with opened(device.path) as service:
        text = service.ask("GET", "/page/history.csv").body.decode()
        kept = tmp_path / "history.csv"
        assert solera("device", "history", device.path, "-o", kept).returncode == 0
        assert kept.read_text() == text
        for separator in ",;":
            cells = [cell for row in csv.reader(io.StringIO(text), delimiter=separator) for cell in row]
            assert not [cell for cell in cells if cell.startswith(tuple("=+-@\t\r"))]
        assert "'-2+3" in text and "''=Fargo" in text
        before = titles(service)
        assert sorted(before) == sorted(FORMULAS)
        for column in ("item", "title"):  # each alone finds every film
            assert service.ask("DELETE", "/page/everything").status == 200
            query = urlencode({"name": "history.csv", "columns": json.dumps({column: column})})
            job = wait_for(service, service.ask("POST", f"/page/imports?{query}", text.encode()).json)
            assert job["report"]["added"] == len(FORMULAS), job
            assert titles(service) == before
    assert solera("device", "forget", device.path, "--all", "--yes").returncode == 0
    read = solera("device", "import", device.path, "csv", kept, "--columns", "item=item", "--json")
    assert json.loads(read.stdout)["added"] == len(FORMULAS)
    reached("text in a spreadsheet; the same titles after an import")


def titles(service: OpenService) -> list[str]:
    return [each["title"] for each in service.ask("GET", "/page/history").json]


@attack(
    "local program",
    "A body that grows beyond the limit is refused with 413, and leaves no traceback.",
    before="500 and a traceback on the terminal",
)
def test_a_streamed_body_that_is_too_large(folder, tmp_path, reached):
    """Before: `500 Internal Server Error`, and `TooLargeError` on the terminal."""
    with (tmp_path / "errors").open("wb") as errors, opened(folder, errors=errors) as service:
        headers = {"Transfer-Encoding": "chunked"}
        piece = b"10000\r\n" + b"a" * 65_536 + b"\r\n"
        for pieces, status in ((1, 400), (16, 413)):  # less is read, and is no JSON
            answer = service.ask("POST", "/page/entries", piece * pieces + b"0\r\n\r\n", headers=headers)
            assert (answer.status, set(answer.json)) == (status, {"error", "next"})
    assert (tmp_path / "errors").read_text() == ""
    reached("413, and nothing on the terminal")


def half_a_request(host: str) -> bytes:
    return f"GET / HTTP/1.1\r\nHost: {host}\r\nX: ".encode()


def many_requests(host: str) -> bytes:
    """Whose answers nobody reads."""
    return f"GET /app.js HTTP/1.1\r\nHost: {host}\r\n\r\n".encode() * 200


@contextmanager
def unprotected(folder: Path) -> Iterator[OpenService]:
    """The same service, with connections as the web server makes them."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65_536)  # 120 of them are few
        port, token = listening.getsockname()[1], secrets.token_urlsafe(8)
        app = make_app(folder, "me", token, Place(f"127.0.0.1:{port}"))
        server = uvicorn.Server(uvicorn.Config(app, limit_concurrency=100, log_level="critical"))
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        try:
            yield OpenService(folder, port, token, os.getpid())
        finally:
            server.should_exit = True
            thread.join(30)


def owner_among(service: OpenService, request: Callable[[str], bytes]) -> list[int]:
    """What the owner gets while another program keeps connections open, and opens more."""
    with ExitStack() as held:
        for _ in range(CONNECTIONS):
            stranger = held.enter_context(socket.socket())
            stranger.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # answers wait at the server
            stranger.settimeout(5)
            stranger.connect(("127.0.0.1", service.port))
            stranger.settimeout(0.05)
            with suppress(OSError):  # it is full, or has been ended
                stranger.sendall(request(service.host))
            time.sleep(0.02)
        statuses = []
        for _ in range(5):
            held.enter_context(socket.create_connection(("127.0.0.1", service.port), timeout=5))
            statuses.append(service.ask("GET", "/page/history").status)
            time.sleep(0.2)
        return statuses


@attack(
    "local program",
    "Connections that ask for nothing cannot keep the owner from the page.",
    before="503 as long as another program held 120 half requests",
)
@pytest.mark.parametrize("request_", [half_a_request, many_requests])
def test_connections_that_ask_for_nothing(folder, request_, reached):
    """Before: 503, still after 40 seconds."""
    with unprotected(folder) as service:
        assert set(owner_among(service, request_)) == {503}
    with opened(folder) as service:
        assert set(owner_among(service, request_)) == {200}
    reached("the owner is served among 120 of them")
