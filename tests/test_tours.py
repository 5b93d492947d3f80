"""What the site tells people to type works as it stands there.

Every page is followed twice: everyday on a small made-up data set that goes by the name of ml-100k, and, by
name, on the real one. The tour that starts servers and nodes is followed in tests/deploy/test_tour.py.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars
import pytest

from in_process import solera

DOCS = Path(__file__).parent.parent / "docs"
PAGES = (
    "start/first-results.md",
    "start/one-table.md",
    "concepts/introduction.md",
    "start/questions.md",
    "guides/add-a-method.md",
    "federation/audit.md",
)
BLOCK = re.compile(r'^```(console|python)(?: title="([^"]+)")?\n(.*?)^```', re.DOTALL | re.MULTILINE)
# What is not followed: installing, which is done already, and measuring, which takes minutes.
LEFT_OUT = ("pip install", "python -m venv", "solera bench")


@pytest.fixture(scope="session")
def small_ml_100k(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of data sets with 200 users and 150 items, popular ones among them, in MovieLens' format."""
    draw = np.random.default_rng(0)
    likely = 1 / np.arange(1, 151)
    lines = []
    for user in range(1, 201):
        items = draw.choice(150, draw.integers(8, 20), replace=False, p=likely / likely.sum())
        lines += [f"{user}\t{item + 1}\t4\t{time}" for time, item in enumerate(items)]
    folder = tmp_path_factory.mktemp("data")
    (folder / "ml-100k").mkdir()
    (folder / "ml-100k" / "u.data").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


class Follower:
    """Does what a page says, in a folder of its own."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capsys, self._monkeypatch = capsys, monkeypatch
        self._names: dict[str, object] = {}
        self.said: dict[str, str] = {}
        self.quick: tuple[str, ...] = ()  # for pytest, where not all of its tests are to be run

    def follow(self, page: str) -> None:
        for language, title, text in BLOCK.findall((DOCS / page).read_text(encoding="utf-8")):
            if title:
                Path(title).write_text(text, encoding="utf-8")
            elif language == "python":
                exec(text, self._names)
                self.said[text] = self._capsys.readouterr().out
            else:
                for line in text.splitlines():
                    if not line.startswith(LEFT_OUT):
                        self._type(line)

    def _type(self, line: str) -> None:
        command, _, comment = line.partition("  # ")
        expected = int(comment.removeprefix("exit code ")) if comment.startswith("exit code ") else 0
        words = shlex.split(command)
        match words[0]:
            case "export":
                self._monkeypatch.setenv(*words[1].split("=", 1))
                return
            case "solera":
                done = solera(*words[1:])
                assert done.returncode == expected, f"{line}\n{done.stdout}{done.stderr}"
                self.said[line] = done.stdout
                return
            case "pytest":
                code = subprocess.run(
                    [sys.executable, "-m", *words], check=False, capture_output=True
                ).returncode
            case _:
                code = subprocess.run(words, check=False).returncode
        heard = self._capsys.readouterr()
        assert code == expected, f"{line}\n{heard.out}{heard.err}"
        self.said[line] = heard.out


@pytest.fixture
def follower(tmp_path, monkeypatch, capsys, no_own_methods) -> Follower:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    return Follower(capsys, monkeypatch)


def check(page: str, follower: Follower) -> None:
    """That what the pages promise is there."""
    said = follower.said
    match page:
        case "start/first-results.md":
            assert Path("report.html").stat().st_size > 10_000
            assert "full ranking" in said["solera baseline popularity --data ml-100k"]
        case "start/one-table.md":
            everybody = polars.read_parquet("everybody.parquet")
            assert everybody.columns == ["user", "rank", "item", "title", "score"]
            assert everybody.height == 20 * everybody["user"].n_unique() == 20 * 500
            assert polars.read_parquet("next.parquet").height == 20 * 500
        case "concepts/introduction.md":
            assert "LEAKY" in said["solera data audit ml-100k --protocol paper"]
            assert "elastic-merge" in said["solera methods"]
        case "start/questions.md":
            assert "paper:fedrap/ml-100k" in said["solera presets"]
        case "guides/add-a-method.md":
            assert "plus bias" in said["solera --methods-file fedbias.py methods fedbias"]
            assert "For user 1" in said["solera recommend runs/fedbias --user 1 -k 3"]
        case "federation/audit.md":
            assert "ε = 8" in "".join(text for line, text in said.items() if "--dp" in line)
            assert len(list(Path("audit").rglob("*.json"))) == 3
            assert Path("audit/report.html").exists()


@pytest.mark.parametrize("page", PAGES)
def test_a_page_on_small_data(page, follower, small_ml_100k, monkeypatch):
    monkeypatch.setenv("SOLERA_DATA", str(small_ml_100k))
    follower.quick = ("-k", "by_hand or undeclared or same_round")
    follower.follow(page)
    check(page, follower)


@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get("SOLERA_DATA"), reason="SOLERA_DATA is not set")
@pytest.mark.parametrize("page", PAGES)
def test_a_page_on_real_data(page, follower):
    follower.follow(page)
    check(page, follower)
