"""A person takes part in a real federation from the page of a device: TLS, real nodes, a real browser."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from collections import deque
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from real import RealFederation, people

from commands import below, environment
from open_service import opened
from solera.device.device import Device
from solera.device.ledger import Ledger
from solera.device.policy import Agreement
from solera.federation.common.authority import make_keys
from solera.federation.node.accepted import accepted
from solera.federation.operate import server as serving
from solera.federation.operate.inviting import invitation

WEB = Path(__file__).parents[2] / "web"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


class Person:
    """The browser, one step after the other."""

    def __init__(self, link: str, path: Path) -> None:
        pictures = [os.environ["SOLERA_PICTURES"]] if "SOLERA_PICTURES" in os.environ else []
        self.process = subprocess.Popen(
            ["node", "tests/take_part.mjs", link, str(path), *pictures],
            cwd=WEB,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def has(self, step: str) -> dict[str, Any]:
        assert self.process.stdout
        line = self.process.stdout.readline()
        assert line, f"the browser ended before {step}"
        found: dict[str, Any] = json.loads(line)
        assert found["step"] == step
        return found

    def goes_on(self) -> None:
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()


@pytest.mark.slow
@pytest.mark.xdist_group("real")
@pytest.mark.skipif("SOLERA_DATA" not in os.environ, reason="needs the data sets")
@pytest.mark.skipif(not any(map(shutil.which, BROWSERS)), reason="needs Chromium")
@pytest.mark.skipif(not (WEB / "node_modules").is_dir(), reason="needs `npm ci` in web/")
def test_a_person_takes_part_from_the_page(tmp_path, key, monkeypatch):
    """Two nodes and the device behind the page train two rounds; the page tells what left, and leaves."""
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    keys = tmp_path / "keys"
    make_keys(keys, 2)  # the person's device makes its own
    with RealFederation(
        tmp_path, keys=keys, key=key, data=people(), method="fedmf", users=[5, 5, 1]
    ) as federation:
        mine = Device.open(federation.devices[2])
        Ledger(mine.store).join_next(False)  # the person agrees on the page, and nowhere else
        path = tmp_path / "node-3.link"
        server = str(federation.address)
        path.write_text(invitation(keys, "node-3", server, "films", Agreement()).link())
        federation.start_server()
        watching = serving.watch(federation.server)
        threading.Thread(target=partial(deque, watching, maxlen=0), daemon=True).start()
        federation.start_node(1)
        federation.start_node(2)
        with opened(federation.devices[2], "--user", "u10") as service:
            person = Person(f"http://{service.host}/#token={service.token}", path)
            try:
                asked = person.has("asked")["part"]
                assert "films asks you to take part" in asked
                assert "An upload can show which items you have." in asked
                assert "No noise is added" in asked
                assert accepted(mine.path) is None  # nothing is kept before the person agrees
                person.goes_on()
                assert f"films, at {server}" in person.has("connected")["part"]
                started = below(service.process)
                assert "node start" in " ".join(psutil.Process(started[0]).cmdline())

                federation.prepare(rounds=2, min_nodes=3)
                federation.nodes[3] = None
                federation.run()
                assert [entry["clients"] for entry in federation.history] == [11, 11]
                person.goes_on()
                shown = person.has("uploaded")
                assert "last round: 2" in shown["part"]
                trained = [each for each in mine.outbox() if each["kind"] == "train"]
                assert len(trained) == 2
                for each in trained:
                    assert f"It told the server {each['told']}." in shown["page"]
                person.goes_on()
                assert "You have left" in person.has("left")["part"]
                assert accepted(mine.path) is None
                assert {each["standing"] for each in Ledger(mine.store).federations()} == {"left"}
                assert not any(map(psutil.pid_exists, started))
                person.goes_on()
                assert (
                    person.has("end")["complaints"] == []
                )  # of the browser, and of axe at the width of a phone
                assert person.process.wait(30) == 0
            finally:
                person.process.kill()
        mine.close()
