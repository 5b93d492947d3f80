"""The service of a device as its page uses it, through `solera device open` on a real port."""

from __future__ import annotations

import json
import time
from pathlib import Path
from urllib.parse import quote

import pytest
from letterboxd_export import zipped

pytest.importorskip("cryptography", reason="needs the device extra")
pytest.importorskip("starlette", reason="needs the page extra")
pytest.importorskip("uvicorn", reason="needs the page extra")

from typer.testing import CliRunner

from open_service import OpenService, opened
from solera.cli import app
from solera.device.bundle import Bundle
from solera.device.device import Device
from solera.device.ledger import Ledger
from solera.device.policy import Agreement
from solera.device.publish import export
from solera.device.tokens import Tokens


@pytest.fixture(scope="module")
def service(bundled, tmp_path_factory):
    folder = tmp_path_factory.mktemp("service") / "me"
    device = Device.create(folder, Bundle.open(bundled("fedslist")))
    device.add_all([("3", 1), ("5", 2), ("9", 3, False)], "me", "test")
    Ledger(device.store).asked("f" * 64, Agreement(masked=True, noise=1.0, rounds=3))
    device.sent({"rows": [7], "trained": [1]}, b"x" * 100, round_=0, steps=["clip 0.5"], kind="train")
    device.close()
    with opened(folder) as running:
        yield running


def imported(service: OpenService, query: str, content: bytes) -> dict:
    job = service.ask("POST", f"/page/imports?{query}", content).json
    until = time.monotonic() + 30
    while job["state"] == "reading" and time.monotonic() < until:
        time.sleep(0.05)
        job = service.ask("GET", f"/page/imports/{job['number']}").json
    return job


def numbers(service: OpenService, search: str = "") -> list[int]:
    return [each["number"] for each in service.ask("GET", f"/page/history?search={search}").json]


def test_recommendations_are_those_of_the_device(service):
    device = Device.open(service.folder)
    wanted = device.recommend(10, reasons=3)
    found = service.ask("GET", "/page/recommendations").json
    assert [(one["item"]["id"], one["score"]) for one in found] == [(one.item, one.score) for one in wanted]
    assert [[each["item"]["id"] for each in one["because"]["reasons"]] for one in found] == [
        [reason.item for reason in one.reasons] for one in wanted
    ]
    late = service.ask("GET", "/page/recommendations?from_year=1980&to_year=1985&count=20").json
    assert {one["item"]["year"] for one in late} == set(range(1980, 1986))
    first = found[0]["item"]["id"]
    assert service.ask("PUT", "/page/choices", {"item": first, "hidden": True}).status == 200
    assert service.ask("GET", "/page/recommendations").json[0]["item"]["id"] == found[1]["item"]["id"]
    chosen = service.ask("GET", "/page/choices").json
    assert ([each["id"] for each in chosen["hidden"]], chosen["disliked"]) == ([first], [])
    service.ask("PUT", "/page/choices", {"item": first, "hidden": False})
    similar = [each["id"] for each in service.ask("GET", "/page/similar?item=3&count=4").json]
    assert similar == [item.id for item in device.similar("3", 4)]
    device.close()


def test_another_person_of_the_household_is_imported_asked_for_and_forgotten(service):
    rows = "item,time\n20,1\n21,2\n22,3\n"
    columns = quote(json.dumps({"item": "item", "time": "time"}))
    assert (
        imported(service, f"name=ana.csv&person=Ana&columns={columns}", rows.encode())["report"]["added"] == 3
    )
    assert service.ask("GET", "/page/about").json["people"] == ["Ana"]
    device = Device.open(service.folder)
    wanted = device.recommend(10, along=["Ana"], reasons=3)
    device.close()
    found = service.ask("GET", '/page/recommendations?along=["Ana"]').json
    assert [one["item"]["id"] for one in found] == [one.item for one in wanted]
    assert {each["item"]["id"] for each in found[0]["theirs"][0]["reasons"]} <= {"20", "21", "22"}
    assert service.ask("GET", "/page/recommendations?along=Ana").status == 400
    assert service.ask("DELETE", "/page/everything?person=Ana").json == {"forgotten": 3}
    assert service.ask("GET", "/page/about").json["people"] == []
    assert service.ask("GET", "/page/history").json


def test_a_list_is_imported_and_chosen_from(service):
    rows = "title,year\nFilm 20,1980\nFilm 21,1981\nUnknown,1999\n"
    columns = quote(json.dumps({"title": "title", "year": "year"}))
    job = imported(service, f"name=list.csv&as_list=yes&columns={columns}", rows.encode())
    assert job["report"]["added"] == 2
    assert service.ask("GET", "/page/about").json["listed"] == 2
    chosen = service.ask("GET", "/page/recommendations?listed=true").json
    assert sorted(one["item"]["id"] for one in chosen) == ["20", "21"]
    assert service.ask("DELETE", "/page/list").status == 200
    assert service.ask("GET", "/page/recommendations?listed=true").json == []


def test_an_export_is_imported_and_its_titles_are_matched(service, tmp_path):
    path = zipped(tmp_path / "letterboxd.zip")
    before = len(numbers(service))
    job = imported(service, "name=letterboxd.zip", path.read_bytes())
    report = job["report"]
    assert job["state"] == "done"
    assert len(numbers(service)) == before + report["added"] > before
    near = next(each for each in report["unmatched"] if each["near"])
    match = {"title": near["title"], "year": near["year"], "item": near["near"][0]["id"]}
    again = service.ask("POST", f"/page/imports/{job['number']}/matches", {"matches": [match]})
    assert again.json["added"] >= 1
    failed = imported(service, "name=empty.csv&columns=%7B%22item%22%3A%22item%22%7D", b"item\n")
    assert failed["state"] == "failed"
    assert failed["error"]["error"].startswith("empty.csv has no row")  # and not where it was stored
    assert service.ask("GET", f"/page/imports/{job['number']}").status == 400


def test_entries_are_added_corrected_removed_and_exported(service):
    assert service.ask("POST", "/page/entries", {"item": "30", "time": 86_400}).json == {"added": True}
    (number,) = numbers(service, "Film%2030")
    change = {"item": "31", "time": None, "counts": False}
    assert service.ask("PUT", f"/page/entries/{number}", change).json["counts"] is False
    text = service.ask("GET", "/page/history.csv").body.decode()
    assert "31,Film 31 (1991),,by hand,no\n" in text
    assert service.ask("DELETE", f"/page/entries/{number}").json == {"removed": 1}
    assert numbers(service, "Film%2031") == []
    for verb, path, body in (
        ("POST", "/page/entries", {"item": "nothing"}),
        ("POST", "/page/entries", {"time": 3}),
        ("PUT", f"/page/entries/{number}", change),
        ("PUT", "/page/entries/1", change | {"item": "nothing"}),
        ("POST", "/page/entries", [1]),
        ("PUT", "/page/policy", {"least_nodes": 1}),
        ("PUT", "/page/policy", [1]),
        ("PUT", "/page/federation", {"federation": "unknown", "standing": "joined"}),
    ):
        answer = service.ask(verb, path, body)
        assert answer.status == 400, (path, body)
        assert set(answer.json) == {"error", "next"}


def test_what_left_and_what_is_allowed(service):
    left = service.ask("GET", "/page/left").json
    (sent,) = left["sent"]
    assert sent["told"].startswith("your upload, which the server can read")
    assert (sent["bytes"], sent["protection"]) == (100, "the server can read it, its length limited to 0.5")
    assert [(each["id"], each["standing"]) for each in left["federations"]] == [("f" * 64, "asked")]
    for standing in ("joined", "paused", "left"):
        changed = service.ask("PUT", "/page/federation", {"federation": "f" * 64, "standing": standing}).json
        assert changed["federations"][0]["standing"] == standing
    changed = service.ask("PUT", "/page/policy", {"least_users": 50, "allow_plain": False}).json
    values = {each["name"]: each["value"] for each in changed["policy"]}
    assert (values["least_users"], values["allow_plain"], values["least_nodes"]) == (50, False, 10)


def test_a_model_is_updated_and_taken_back(service, trained, data, keys, tmp_path):
    old = service.ask("GET", "/page/about").json
    assert old["former"] is None
    new = tmp_path / "2.bundle"
    export(trained("fedease").path, new, Path(f"{keys}.key"), data=data, catalogue_version=2)
    changed = bytearray(new.read_bytes())
    changed[len(changed) // 2] ^= 1
    assert service.ask("POST", "/page/model", bytes(changed)).status == 400
    about = service.ask("POST", "/page/model", new.read_bytes()).json
    assert (about["model"]["method"], about["model"]["catalogue_version"]) == ("fedease", 2)
    assert about["former"] == {"version": 1, "digest": old["model"]["digest"]}
    back = service.ask("POST", "/page/model/back").json
    assert back["model"] == old["model"]
    assert not list(service.folder.glob("*import*/*.bundle"))


def test_the_device_is_used_by_commands_at_the_same_time(service):
    """A command of another process is seen at once, and the service does not keep others from wiping."""
    done = CliRunner().invoke(app, ["device", "add", str(service.folder), "Film 33 (1993)", "--json"])
    assert done.exit_code == 0, done.output
    (number,) = numbers(service, "Film%2033")
    done = CliRunner().invoke(app, ["device", "forget", str(service.folder), str(number), "--yes"])
    assert done.exit_code == 0, done.output
    assert numbers(service, "Film%2033") == []


def test_everything_is_forgotten(service):
    device = Device.open(service.folder)
    Tokens(device.store).create("a program", ["read"], "me")
    assert service.ask("DELETE", "/page/everything").status == 200
    assert numbers(service) == []
    assert Tokens(device.store).listed() == []
    assert service.ask("GET", "/page/recommendations").json == []
    device.close()


def test_a_port_in_use_and_a_missing_device_are_errors(service, tmp_path):
    command = ["device", "open", str(service.folder), "--no-browser", "--port", str(service.port)]
    done = CliRunner().invoke(app, command)
    assert done.exception and "cannot be used" in str(done.exception)
    done = CliRunner().invoke(app, ["device", "open", str(tmp_path / "none"), "--no-browser"])
    assert done.exception and "contains no device" in str(done.exception)


def test_the_browser_is_opened_by_a_private_file(tmp_path, monkeypatch):
    """Other users of the machine see the arguments of a browser, so the token is not among them."""
    from solera.service import serve

    seen: list[str] = []
    monkeypatch.setattr("webbrowser.open", seen.append)
    link, opener = "http://127.0.0.1:1/#token=secret", tmp_path / "open.html"
    serve._open(opener, link)
    assert seen == [opener.as_uri()]
    assert opener.stat().st_mode & 0o777 == 0o600
    assert link in opener.read_text()
