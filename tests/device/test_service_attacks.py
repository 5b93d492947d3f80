"""Attacks on a device's service: other sites, other hosts, wrong tokens, odd paths and large bodies."""

from __future__ import annotations

import re
import socket
import time
from pathlib import Path

import pytest

pytest.importorskip("cryptography", reason="needs the device extra")
pytest.importorskip("starlette", reason="needs the page extra")
pytest.importorskip("uvicorn", reason="needs the page extra")

from open_service import OpenService, opened
from solera.device.bundle import Bundle
from solera.device.device import Device
from solera.device.tokens import Tokens

GIGABYTE = 1 << 30
INTERACTIONS = "/api/v1/interactions"
READS = [
    "about",
    "history",
    "history.csv",
    "items?search=film",
    "recommendations",
    "similar?item=1",
    "choices",
]
READS = [f"/page/{path}" for path in (*READS, "left", "imports/1")] + [
    *("/api/v1/recommendations", "/api/v1/items?search=film", "/api/v1/items/1", "/api/v1/similar?item=1")
]
CHANGES = [
    *(
        ("POST", f"/page/{path}")
        for path in ("entries", "imports", "imports/1/matches", "model", "model/back")
    ),
    *(("PUT", f"/page/{path}") for path in ("entries/1", "choices", "federation", "policy")),
    *(("DELETE", f"/page/{path}") for path in ("entries/1", "everything", "list")),
    ("POST", "/api/v1/interactions"),
]


@pytest.fixture(scope="module")
def service(bundled, tmp_path_factory):
    folder = tmp_path_factory.mktemp("service") / "me"
    device = Device.create(folder, Bundle.open(bundled("fedslist")))
    device.add_all([("3", 1), ("5", 2)], "me", "test")
    device.close()
    with opened(folder) as running:
        yield running


def rows(service: OpenService) -> list:
    device = Device.open(service.folder)
    held = [
        tuple(row)
        for table in ("interactions", "hidden", "disliked", "listed", "settings")
        for row in device.store.rows(f"SELECT * FROM {table}")
    ]
    device.close()
    return held


def test_the_owner_gets_an_answer(service):
    """Without it, the refusals below would prove nothing."""
    assert service.ask("GET", "/page/history").status == 200
    assert [each["item"] for each in service.ask("GET", "/page/history").json] == ["3", "5"]


@pytest.mark.parametrize("token", [None, "wrong", "", " ", "solera_x", "é"])
def test_nothing_is_told_or_changed_without_the_token(service, token):
    before = rows(service)
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    for verb, path in [*(("GET", path) for path in READS), *CHANGES]:
        answer = service.ask(verb, path, {} if verb != "GET" else None, token=None, headers=headers)
        assert answer.status == 401, path
        assert b"Film" not in answer.body
    assert rows(service) == before


def test_a_token_elsewhere_than_in_the_header_is_none(service):
    for path in (f"/page/history?token={service.token}", f"/page/history?access_token={service.token}"):
        assert service.ask("GET", path, token=None).status == 401
    headers = {"Cookie": f"token={service.token}"}
    assert service.ask("GET", "/page/history", token=None, headers=headers).status == 401
    basic = {"Authorization": f"Basic {service.token}"}
    assert service.ask("GET", "/page/history", token=None, headers=basic).status == 401


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://localhost:{port}", "http://127.0.0.1", "file://"]
)
def test_another_origin_is_refused_even_with_the_token(service, origin):
    before = rows(service)
    headers = {"Origin": origin.format(port=service.port)}
    for verb, path in [("GET", "/"), ("GET", "/app.js"), *(("GET", path) for path in READS), *CHANGES]:
        answer = service.ask(verb, path, headers=headers)
        assert answer.status == 403, path
        assert "access-control-allow-origin" not in answer.headers
    assert rows(service) == before
    assert service.ask("OPTIONS", "/page/entries", headers=headers).status == 403  # no preflight succeeds


def test_a_browser_that_says_cross_site_is_refused(service):
    for site in ("cross-site", "same-site"):
        assert service.ask("GET", "/page/history", headers={"Sec-Fetch-Site": site}).status == 403
    assert service.ask("GET", "/page/history", headers={"Sec-Fetch-Site": "same-origin"}).status == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:{port}",
        "localhost:{port}",
        "127.0.0.1",
        "127.0.0.1:{port}.evil.example",
        "[::1]:{port}",
    ],
)
def test_a_name_that_points_here_is_refused(service, host):
    """DNS rebinding: the browser believes that evil.example is this service, and sends its name."""
    headers = {"Host": host.format(port=service.port)}
    for path in ("/", "/app.js", "/page/history", "/api/openapi.json"):
        answer = service.ask("GET", path, headers=headers)
        assert answer.status == 421, path
        assert b"<script" not in answer.body


def test_two_hosts_and_none_are_refused(service):
    for lines in ("", f"Host: {service.host}\r\nHost: evil.example\r\n", "Host: evil.example\r\n"):
        assert raw(service, f"GET / HTTP/1.1\r\n{lines}Connection: close\r\n\r\n".encode())[9:12] in (
            b"400",
            b"421",
        )
    absolute = (
        f"GET http://evil.example/page/history HTTP/1.1\r\nHost: {service.host}\r\nConnection: close\r\n\r\n"
    )
    assert raw(service, absolute.encode())[9:12] in (b"400", b"401", b"404", b"421")


@pytest.mark.parametrize(
    "path",
    [
        "/../device.db",
        "/..%2f..%2fdevice.db",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/app.js/../../device.db",
        "//etc/passwd",
        "/app.js%00.html",
        "/page/../device.db",
        "/page_assets/app.js",
        "/device.db",
        "/..\\device.db",
        "/static/../../../../etc/passwd",
        "/page/imports/..%2f..%2fdevice.db",
    ],
)
def test_no_path_reaches_a_file(service, path):
    answer = raw(service, head(service, "GET", path, "Connection: close"))
    assert answer[9:12] in (b"404", b"400", b"405"), answer[:100]
    assert b"SQLite" not in answer
    assert b"root:" not in answer


def test_the_name_of_an_upload_is_no_path(service):
    outside = service.folder.parent / "planted.csv"
    answer = service.ask(
        "POST",
        "/page/imports?name=..%2F..%2F..%2Fplanted.csv&columns=%7B%22item%22%3A%22item%22%7D",
        b"item\n7\n",
    )
    assert answer.status == 202
    job = answer.json
    until = time.monotonic() + 20
    while job["state"] == "reading" and time.monotonic() < until:
        job = service.ask("GET", f"/page/imports/{job['number']}").json
    assert job["state"] == "done"
    assert not outside.exists()
    held = list(service.folder.parent.rglob("*.csv"))
    assert [path.name for path in held] == ["planted.csv"] and held[0].parent.parent == service.folder
    number = service.ask("GET", "/page/history").json[0]["number"]
    assert service.ask("DELETE", f"/page/entries/{number}").status == 200


def test_no_get_changes_anything(service):
    before = rows(service)
    for verb, path in CHANGES:
        for other in ("GET", "HEAD"):
            answer = service.ask(other, path, token="")
            reads = path == INTERACTIONS and other == "GET"
            allowed = reads or path in (*READS, "/page/choices")
            assert answer.status in ((200,) if allowed else (404, 405)), (verb, path)
        answer = service.ask("GET", path, headers={"X-HTTP-Method-Override": verb})
        assert answer.status in (200, 404, 405)
    for path in READS:
        if not path.endswith(("recommendations", "similar?item=1")):  # which compute for seconds
            assert service.ask("GET", path).status in (200, 400), path  # 400: no such import
    assert rows(service) == before


def test_a_declared_gigabyte_is_refused_at_once(service):
    for path in ("/page/imports?name=x.csv", "/page/model", "/page/entries", "/api/v1/interactions", "/"):
        request = head(service, "POST", path, f"Content-Length: {GIGABYTE}")
        assert raw(service, request)[9:12] == b"413", path


@pytest.mark.parametrize(
    ("path", "most"), [("/page/imports?name=x.csv", 1 << 28), ("/page/entries", 1 << 18)]
)
def test_a_streamed_gigabyte_is_stopped_and_takes_no_memory(service, path, most):
    before = memory(service.process)
    piece = b"100000\r\n" + bytes(1 << 20) + b"\r\n"
    sent, peak = 0, before
    with socket.create_connection(("127.0.0.1", service.port), timeout=60) as connection:
        connection.sendall(head(service, "POST", path, "Transfer-Encoding: chunked"))
        try:
            while sent < GIGABYTE:
                connection.sendall(piece)
                sent += 1 << 20
                peak = max(peak, memory(service.process)) if sent % (16 << 20) == 0 else peak
        except OSError:
            pass  # it has closed the connection
    assert sent <= most + (32 << 20)
    assert peak - before < 64 << 20
    assert not list(service.folder.glob("*import*"))  # what had arrived is gone
    assert service.ask("GET", "/page/history").status == 200


def test_a_stream_without_the_token_is_not_read(service):
    wrong = service._replace(token="wrong")
    request = head(wrong, "POST", "/page/imports?name=x.csv", "Transfer-Encoding: chunked")
    assert raw(service, request)[9:12] == b"401"


def test_no_address_with_the_token_is_told_to_others(service):
    """Referrer-Policy, and the token is in the fragment, which no request carries."""
    for path in ("/", "/app.js", "/app.css", "/page/history", "/api/openapi.json", "/nowhere"):
        answer = service.ask("GET", path)
        assert answer.headers["referrer-policy"] == "no-referrer", path
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert service.token.encode() not in answer.body
    page = service.ask("GET", "/", token=None)
    assert b'name="referrer" content="no-referrer"' in page.body


def test_the_page_has_no_inline_script_and_the_policy_forbids_it(service):
    page = service.ask("GET", "/", token=None)
    rules = dict(rule.split(" ", 1) for rule in page.headers["content-security-policy"].split("; "))
    assert rules["default-src"] == rules["form-action"] == rules["frame-ancestors"] == "'none'"
    assert rules["script-src"] == rules["style-src"] == rules["connect-src"] == "'self'"
    text = page.body.decode()
    assert re.findall(r"<script[^>]*>", text) == ['<script src="app.js">']
    assert not re.search(r"<style|\son\w+=|javascript:|https?://(?!www\.w3\.org/2000/svg)", text)


def test_only_this_machine_is_served(service):
    """It listens on 127.0.0.1 and on no other address."""
    hexadecimal = f"{service.port:04X}"
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        if not Path(table).exists():
            pytest.skip("needs Linux")
        lines = [line.split() for line in Path(table).read_text().splitlines()[1:]]
        listening = {line[1] for line in lines if line[3] == "0A" and line[1].endswith(f":{hexadecimal}")}
        assert listening <= {f"0100007F:{hexadecimal}"}


def test_a_programs_token_is_no_owners(service):
    device = Device.open(service.folder)
    secrets = {scope: Tokens(device.store).create(f"a {scope}er", [scope], "me") for scope in ("read", "add")}
    device.close()
    for secret in secrets.values():
        for verb, path in [*(("GET", path) for path in READS if path.startswith("/page")), *CHANGES[:-1]]:
            assert service.ask(verb, path, {} if verb != "GET" else None, token=secret).status == 403, path
    assert service.ask("POST", "/api/v1/interactions", {}, token=secrets["read"]).status == 403
    assert service.ask("GET", "/api/v1/recommendations", token=secrets["add"]).status == 403


def head(service: OpenService, verb: str, path: str, *lines: str) -> bytes:
    """The head of a request with the owner's token."""
    first = (f"{verb} {path} HTTP/1.1", f"Host: {service.host}", f"Authorization: Bearer {service.token}")
    return "\r\n".join((*first, *lines, "", "")).encode()


def raw(service: OpenService, request: bytes) -> bytes:
    """The first bytes of the answer to a request that no client would send."""
    with socket.create_connection(("127.0.0.1", service.port), timeout=20) as connection:
        connection.sendall(request)
        return connection.recv(1 << 16)


def memory(process: int) -> int:
    """Bytes that a process has in memory."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    assert found
    return int(found[1]) << 10
