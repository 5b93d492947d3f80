"""The commands of publisher and person, from keys to reasons, as text and as JSON."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from in_process import run, run_json

pytest.importorskip("cryptography", reason="needs the device extra")

from solera.core.errors import BundleError, ConfigError, DeviceError


@pytest.fixture
def me(bundled, keys, tmp_path) -> Path:
    run("device", "init", tmp_path / "me", "--bundle", bundled("fedhist"), "--key", f"{keys}.pub")
    return tmp_path / "me"


def test_publishing(tmp_path, bundled, keys):
    made = run_json("bundle", "keygen", "-o", tmp_path / "p")
    assert re.fullmatch(r"([0-9a-f]{4} ){7}[0-9a-f]{4}", made["fingerprint"])
    shown = run_json("bundle", "show", bundled("fedslist"), "--key", f"{keys}.pub")
    assert shown["method"] == "fedslist"
    assert shown["items"] == 40
    assert "ndcg@10" in shown["trained"]["test"]["full"]
    assert "test ndcg@10, full ranking" in run("bundle", "show", bundled("fedslist"))
    with pytest.raises(BundleError, match="another key"):
        run("bundle", "show", bundled("fedslist"), "--key", made["pub"])


def test_an_unknown_key_is_not_trusted_unasked(tmp_path, bundled):
    with pytest.raises(BundleError, match="you have not confirmed") as error:
        run("device", "init", tmp_path / "d", "--bundle", bundled("fedslist"))
    assert "--trust" in error.value.hint
    assert not (tmp_path / "d").exists()
    trusted = run_json("device", "init", tmp_path / "d", "--bundle", bundled("fedslist"), "--trust")
    assert trusted["publisher"] in error.value.message


def test_from_films_to_reasons(me, tmp_path):
    assert run("device", "add", me, "film 3", "--time", "2024-01-01").startswith("added: Film 3 (1963)")
    assert run("device", "add", me, "3", "--time", "2024-01-01").startswith("known already")
    films = tmp_path / "films.csv"
    films.write_text("Film,Made,Seen\nFilm 4,1964,2024-01-02\nFilm 44,2004,2024-01-03\n")
    columns = ("--columns", "title=Film,year=Made,time=Seen")
    report = run_json("device", "import", me, "csv", films, *columns)
    assert (report["entries"], report["matched"], report["added"]) == (2, 1, 1)
    assert report["unmatched"][0]["title"] == "Film 44"
    assert "Film 44" in run("device", "import", me, "csv", films, *columns)
    found = run_json("device", "recommend", me, "-k", 5, "--why")["items"]
    assert [each["rank"] for each in found] == [1, 2, 3, 4, 5]
    for each in found:
        assert {reason["title"] for reason in each["because"]} <= {"Film 3 (1963)", "Film 4 (1964)"}
        assert all(reason["part"] > 0 for reason in each["because"])
        parts = sum(reason["part"] for reason in each["because"]) + each["others"] + each["popular"]
        assert parts == pytest.approx(each["score"], rel=1e-4)
    assert "because" not in run_json("device", "recommend", me)["items"][0]


def test_what_is_left_out_is_said(me, tmp_path):
    films = tmp_path / "films.csv"
    films.write_text("Film\nFilm 4\n" + "x" * 501 + "\n" + "".join(f"y {n}\n" for n in range(10_002)))
    shown = run("device", "import", me, "csv", films, "--columns", "title=Film")
    rows = {" ".join(words[:-1]): words[-1] for line in shown.splitlines() if (words := line.split())}
    assert rows["added"] == "1"
    assert rows["not in the catalogue"] == "10,002"
    assert rows["the name has more than 500 characters"] == "1"
    assert "What became of 10,004 rows" in shown
    assert "20 of them; --json gives the first 10,000" in shown
    assert "2 more entries are not in the catalogue either" in shown
    report = run_json("device", "import", me, "csv", films, "--columns", "title=Film")
    assert (len(report["unmatched"]), report["unlisted"]) == (10_000, 2)
    assert report["left_out"] == {"the name has more than 500 characters": 1}


def test_status_outbox_and_forgetting(me):
    assert "nothing has ever left this device" in run("device", "outbox", me)
    assert run_json("device", "outbox", me) == []
    run("device", "add", me, "3")
    run("device", "add", me, "4", "--user", "you")
    status = run_json("device", "status", me)
    assert [(user["name"], user["items"]) for user in status["users"]] == [("me", 1), ("you", 1)]
    assert (status["method"], status["database"], status["sent"]) == ("fedhist", "ok", 0)
    with pytest.raises(ConfigError, match="choose what to delete"):
        run("device", "forget", me)
    with pytest.raises(ConfigError, match="choose what to delete"):
        run("device", "forget", me, "--all", "--user", "me")
    with pytest.raises(ConfigError, match="1 entry of Film 3 \\(1963\\) would be deleted") as error:
        run("device", "forget", me, "--item", "Film 3")
    assert error.value.hint == "give --yes"
    assert "1 entry deleted" in run("device", "forget", me, "--item", "Film 3", "--yes")
    with pytest.raises(DeviceError, match="no user 'him'"):
        run("device", "forget", me, "--user", "him", "--yes")
    with pytest.raises(ConfigError, match="everything else about user 'you'"):
        run_json("device", "forget", me, "--user", "you")
    assert run_json("device", "forget", me, "--user", "you", "--yes")["forgotten"] == 1
    with pytest.raises(ConfigError, match="0 entries, everything about 1 user, and the record"):
        run("device", "forget", me, "--all")
    assert "0 entries deleted" in run("device", "forget", me, "--all", "--yes")
    with pytest.raises(DeviceError, match="has no history yet"):
        run("device", "recommend", me)


def test_a_title_in_brackets_is_no_markup(me):
    run("device", "add", me, "Film 3")
    assert "[rec] (1999)" in run("device", "recommend", me, "-k", 40)
    assert run("device", "add", me, "[REC]").startswith("added: [rec] (1999)")


def test_a_wrong_time(me):
    with pytest.raises(ConfigError, match="'soon' is not a date or time"):
        run("device", "add", me, "3", "--time", "soon")


def test_only_recommending_waits_for_torch(me):
    """Adding to a history is quick: the model is not loaded."""
    assert loaded("import solera.device.importers; device.add('3')", me, "torch", "polars") == []


def test_commands_load_what_they_need(me):
    """What checks new bundles and the messages of servers is not needed for an installed bundle."""
    what = "device.add('3'); device.recommend(reasons=3)"
    heavy = ("torch", "polars", "pydantic", "cryptography", "starlette", "asyncio")
    assert loaded(what, me, *heavy) == []
    assert loaded("device.add('3'); device.entries.entries('me')", me, "numpy", *heavy) == []
    assert loaded("import solera.service.app", me, "pydantic", "fastapi", "solera.federation") == ["pydantic"]


def loaded(code, folder, *modules):
    """Which of the modules are loaded when an open device has done this."""
    opened = f"from solera.device.device import Device; device = Device.open(Path({str(folder)!r}))"
    told = f"print(*sorted({set(modules)!r} & set(sys.modules)))"
    command = [sys.executable, "-c", f"import sys; from pathlib import Path\n{opened}\n{code}\n{told}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
