"""The page that sends threshold reports, in Chromium and with real services."""

from __future__ import annotations

import html
import json
import re
import shutil
import sqlite3
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from subprocess import PIPE

import httpx
import pytest
from pydantic import ValidationError

from reporting import Services, line_of
from solera.device.bundle import Bundle
from solera.device.page import CONTRIBUTE, Collected, write_page
from solera.federation.reports.contributing import Sender
from solera.federation.reports.service import Plan
from solera.privacy.reports.measurements import Ledger, measurements
from solera.privacy.reports.reporter import Reporter
from solera.privacy.secagg import new_identity

WEB = Path(__file__).parents[2] / "web"
PLAN = Plan(federation="films", least_devices=2, reports=12, every=20.0)


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    folder = tmp_path / "operators"
    folder.mkdir()
    made = Services(folder, PLAN)
    yield made
    made.end()


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None: ...


@pytest.mark.slow
def test_a_person_turns_it_on_sends_and_deletes(bundled, tmp_path, services):
    if not (WEB / "node_modules").is_dir() or not any(map(shutil.which, ("chromium", "google-chrome"))):
        pytest.skip("needs Chromium, and `npm ci` in web/")
    bundle = Bundle.open(bundled("fedslist", whole=False))
    settings = Collected(
        helper=services.url("helper"), server=services.public.hex(), federation="films", least_devices=2
    )
    write_page(bundle, tmp_path / "page", "Films", settings)
    rows = [3, 1, 4]
    ids = [bundle.catalogue()[row].id for row in rows]
    key = new_identity()
    services.admit("other", line_of(key))
    other = Sender(httpx.Client(base_url=services.url("helper")), key, services.public)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path / "page"))) as site:
        threading.Thread(target=site.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{site.server_port}/"
        command = ["node", "tests/contribute.mjs", address, json.dumps(ids)]
        node = subprocess.Popen(command, cwd=WEB, stdin=PIPE, stdout=PIPE, text=True, bufsize=1)
        assert node.stdin
        assert node.stdout

        def step() -> dict:
            return json.loads(node.stdout.readline())

        def go_on() -> None:
            print(file=node.stdin)

        off = step()
        assert (off["asked"], off["went"]) == ([], [])
        go_on()
        on = step()
        assert on["asked"] == []  # to turn it on sends nothing
        services.admit("page", on["key"].encode())
        epoch = services.next_epoch()
        go_on()
        sent = step()
        assert sent["said"].startswith("Sent: 6 items and pairs")
        ledger = Ledger(sqlite3.connect(":memory:"), "films")
        assert other.send(Reporter(ledger, 2), measurements(rows, 20, ordered=True), "films") == epoch
        reports, counts = services.opened(epoch)
        assert (reports, counts) == (24, dict.fromkeys(measurements(rows, 20, ordered=True), 2))
        titles = [bundle.catalogue()[row].title for row in rows]
        assert len(sent["went"]) == 6
        assert any(f"{titles[0]}, later {titles[1]}" in line for line in sent["went"])
        go_on()
        deleted = step()
        assert sum("deleted" in line for line in deleted["went"]) == 3
        assert not any(titles[0] in line for line in deleted["went"])
        assert deleted["found"] == []
        go_on()
        off = step()
        paths = {re.sub(r"reports/\d+", "reports/N", path) for path in off["asked"]}
        assert paths == {"/v1/reports", "/v1/reports/N/request", "/v1/reports/N/message"}
        go_on()
        node.stdin.close()
        assert node.wait() == 0
        site.shutdown()


def test_only_the_helper_can_be_reached(bundled, tmp_path):
    """And the page that recommends still reaches nothing."""
    bundle = Bundle.open(bundled("fedslist", whole=False))
    given = {
        "helper": "https://helper.example",
        "server": "ab" * 32,
        "federation": "</script>",
        "least_devices": 20,
    }
    write_page(bundle, tmp_path / "plain")
    write_page(bundle, tmp_path / "page", collected=Collected.model_validate(given))
    page = (tmp_path / "page" / CONTRIBUTE).read_text()
    assert "connect-src https://helper.example;" in html.unescape(page)
    assert "</script>" not in page.split('id="settings">')[1].split("</script>")[0]
    assert not (tmp_path / "plain" / CONTRIBUTE).exists()
    plain, linked = ((tmp_path / name / "index.html").read_text() for name in ("plain", "page"))
    assert CONTRIBUTE not in plain.split('id="bundle"')[0]
    assert f'href="{CONTRIBUTE}"' in linked.split('id="bundle"')[0]
    assert "connect-src 'none';" in html.unescape(linked)
    for helper in (
        "https://helper.example; script-src *",
        "http://helper.example",
        "https://helper.example/x",
    ):
        with pytest.raises(ValidationError):
            Collected.model_validate(given | {"helper": helper})
