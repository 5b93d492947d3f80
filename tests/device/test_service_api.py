"""The REST interface for other programs, as its documents describe it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cryptography", reason="needs the device extra")
pytest.importorskip("starlette", reason="needs the page extra")
pytest.importorskip("uvicorn", reason="needs the page extra")

from typer.testing import CliRunner

from open_service import opened
from programs import program
from solera.cli import app
from solera.core.errors import DeviceError
from solera.device.bundle import Bundle
from solera.device.device import Device
from solera.device.tokens import Tokens
from solera.service import api

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "device-in-detail.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def service(bundled, tmp_path_factory):
    folder = tmp_path_factory.mktemp("service") / "me"
    device = Device.create(folder, Bundle.open(bundled("fedslist")))
    device.add_all([("5", 2)], "me", "test")
    device.add_all([("6", 2)], "other", "test")
    device.close()
    with opened(folder) as running:
        yield running


def token(service, *scopes: str, user: str = "me") -> str:
    device = Device.open(service.folder)
    try:
        return Tokens(device.store).create("a program", scopes, user)
    finally:
        device.close()


def test_the_client_of_the_documents_works(service):
    found = re.search(r"<!-- client -->\n```python\n(.*?)```", PAGE, re.DOTALL)
    assert found
    assert len(found[1].splitlines()) <= 40
    secret = token(service, "read", "add")
    environment = {"SOLERA_ADDRESS": f"http://{service.host}", "SOLERA_TOKEN": secret, "PATH": ""}
    command = [sys.executable, "-I", "-c", found[1]]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "taken: 1 not in the catalogue: A film that nobody knows"
    assert len(lines) == 6
    assert all(re.fullmatch(r"\d\. .+ because of .*Film [35].*", line) for line in lines[1:3])


def test_answers_have_the_described_form(service):
    secret = token(service, "read")
    found = service.ask("GET", "/api/v1/recommendations?count=3", token=secret)
    shown = api.Recommendations.model_validate_json(found.body)
    assert [one.rank for one in shown.recommendations] == [1, 2, 3]
    items = api.Items.model_validate_json(
        service.ask("GET", "/api/v1/items?search=film%203", token=secret).body
    )
    assert items.items[0].title == "Film 3 (1963)"
    for path in ("?count=0", "?count=501", "?from_year=x", "?unknown=1"):
        answer = service.ask("GET", f"/api/v1/recommendations{path}", token=secret)
        assert answer.status == 400
        api.Refusal.model_validate_json(answer.body)


def test_every_described_path_is_served_and_the_file_is_fresh(service, capsys):
    described = service.ask("GET", "/api/openapi.json", token=None).json
    assert described["openapi"].startswith("3.1")
    paths = {(path, verb) for path, verbs in described["paths"].items() for verb in verbs}
    assert paths == {
        ("/api/v1/recommendations", "get"),
        ("/api/v1/similar", "get"),
        ("/api/v1/items", "get"),
        ("/api/v1/items/{id}", "get"),
        ("/api/v1/interactions", "get"),
        ("/api/v1/interactions", "post"),
    }
    for path, verb in paths:
        assert service.ask(verb.upper(), path, {} if verb == "post" else None, token=None).status == 401
        assert path in PAGE, path
    text = str(described)
    for name in re.findall(r"#/components/schemas/(\w+)", text):
        assert name in described["components"]["schemas"]
    assert program("docs/make_openapi").main(["--check"], ROOT) == 0, capsys.readouterr().out


def test_interactions_are_added_all_or_none(service):
    secret = token(service, "add", user="somebody")
    good = [{"item": "7", "time": 5}, {"title": "Film 8", "year": 1968, "liked": False}, {"item": "nothing"}]
    wrong: tuple[Any, ...] = (
        {},
        {"interactions": []},
        {"interactions": [*good, {"item": "1", "title": "Film 1"}]},
        {"interactions": [*good, {"item": "1", "time": 10**15}]},
        {"interactions": [{"item": "1"}] * 1001},
        {"interactions": good, "user": "me"},
    )
    for bad in wrong:
        assert service.ask("POST", "/api/v1/interactions", bad, token=secret).status == 400
    device = Device.open(service.folder)
    assert device.entries.entries("somebody") == []
    for _ in range(2):  # the second time nothing is new, and the program is not told so
        answer = service.ask("POST", "/api/v1/interactions", {"interactions": good}, token=secret)
        assert answer.json == {"taken": 2, "by_id": 1, "not_found": ["nothing"]}
    held = [(each.item, each.time, each.counts) for each in device.entries.entries("somebody")]
    assert held == [("8", None, False), ("7", 5, True)]
    assert device.history("me") == device.history()
    device.close()


def test_a_token_is_of_one_user_until_it_is_revoked(service):
    mine, others = token(service, "read"), token(service, "read", user="other")
    shown = {}
    for name, secret in (("me", mine), ("other", others)):
        found = service.ask("GET", "/api/v1/recommendations?count=39", token=secret).json
        shown[name] = {one["item"]["id"] for one in found["recommendations"]}
    assert "5" not in shown["me"] and "5" in shown["other"]
    assert "6" in shown["me"] and "6" not in shown["other"]
    folder = str(service.folder)
    listed = CliRunner().invoke(app, ["device", "token", folder], env={"COLUMNS": "150"})
    assert "a program" in listed.stdout and mine not in listed.stdout
    device = Device.open(service.folder)
    number = max(each.number for each in Tokens(device.store).listed())
    assert next(each for each in Tokens(device.store).listed() if each.number == number).used
    assert mine.encode() not in (service.folder / "device.db").read_bytes()
    device.close()
    gone = CliRunner().invoke(app, ["device", "token", folder, "--revoke", str(number)])
    assert gone.exit_code == 0, gone.output
    assert service.ask("GET", "/api/v1/recommendations", token=others).status == 401
    assert service.ask("GET", "/api/v1/recommendations", token=mine).status == 200


def test_tokens_are_checked_when_they_are_created(device):
    tokens = Tokens(device.store)
    for name, scopes, said in (
        ("x", ["write"], "unknown scope 'write'"),
        ("x", [], "needs a scope"),
        ("", ["read"], "not a valid name"),
        ("\x1b[2J", ["read"], "not a valid name"),
    ):
        with pytest.raises(DeviceError, match=said):
            tokens.create(name, scopes, "me")
    with pytest.raises(DeviceError, match="no token 9"):
        tokens.revoke(9)
    made = CliRunner().invoke(app, ["device", "token", str(device.path), "--create", "x", "--scope", "add"])
    secret = made.stdout.split()[0]
    found = tokens.find(secret)
    assert found and (found.scopes, found.user) == (("add",), "me")
    assert tokens.find(secret[:-1]) is None
