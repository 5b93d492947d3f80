"""What the site tells people to type works as it stands there.

Every page is followed twice: everyday (but for the longest) on a small made-up data set that goes by the name
of ml-100k, and, by name, on the real one. The tour that starts servers and nodes is followed in
tests/federation/test_tour.py.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from ast import literal_eval
from pathlib import Path

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
    "guides/add-a-dataset.md",
    "guides/add-a-metric.md",
    "federation/audit.md",
)
BLOCK = re.compile(r'^```(console|python)(?: title="([^"]+)")?\n(.*?)^```', re.DOTALL | re.MULTILINE)
TEXT = re.compile(r"^```text\n(.*?)^```", re.DOTALL | re.MULTILINE)  # what a page says is printed
# What is not followed: installing, which is done already, and measuring, which takes minutes.
LEFT_OUT = ("pip install", "python -m venv", "solera bench", "solera serve")


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
                    [sys.executable, "-m", *words, *self.quick], check=False, capture_output=True
                ).returncode
            case _:
                code = subprocess.run(words, check=False).returncode
        heard = self._capsys.readouterr()
        assert code == expected, f"{line}\n{heard.out}{heard.err}"
        self.said[line] = heard.out


@pytest.fixture
def follower(tmp_path, monkeypatch, capsys, nothing_of_ones_own) -> Follower:
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
            assert "full ranking" in said["solera train popularity --data ml-100k"]
        case "start/one-table.md":
            everybody = polars.read_parquet("recommendations.parquet")
            assert everybody.columns == ["user", "rank", "item", "title", "score"]
            assert everybody.height == 20 * everybody["user"].n_unique() == 20 * 500
            assert Path("models/current").resolve().name == "model-2"
            assert len(literal_eval(next(text for code, text in said.items() if "onnxruntime" in code))) == 10
        case "concepts/introduction.md":
            assert "LEAKY" in said["solera data audit ml-100k --protocol paper"]
            assert "elastic-merge" in said["solera methods"]
        case "start/questions.md":
            assert "paper:fedrap/ml-100k" in said["solera methods --presets"]
        case "guides/add-a-method.md":
            shown = [
                " ".join(text.split()) for text in TEXT.findall((DOCS / page).read_text(encoding="utf-8"))
            ]
            assert " ".join(said["solera --import fedbias.py methods fedbias"].split()).startswith(shown[0])
            if not follower.quick:
                assert shown[1] in said["pytest -q test_fedbias.py"]
            assert "For user 1" in said["solera recommend runs/fedbias --user 1 -k 3"]
        case "guides/add-a-dataset.md":
            assert re.search(r"^ +club +plays of a", said["solera --import club.py data show"], re.MULTILINE)
            assert any("60 users, 40 items" in text for line, text in said.items() if "import club" in line)
            assert "club under strict" in said["solera --import club.py data audit club"]
        case "guides/add-a-metric.md":
            trained = next(text for line, text in said.items() if "--metric precision@5" in line)
            assert "precision@5" in trained and "precision@10" in trained
            assert "precision@10" in said["solera --import precision.py train popularity --data ml-100k"]
        case "federation/audit.md":
            assert "ε = 8" in "".join(text for line, text in said.items() if "--dp" in line)
            assert len(list(Path("audit").rglob("*.parquet"))) == 2  # of attacks, and of poisonings
            assert Path("audit/report.html").exists()


@pytest.mark.parametrize(
    "page",
    # What one-table types is tested in tests/cli/test_models.py and tests/api/test_onnx.py every day.
    [pytest.param(page, marks=pytest.mark.slow if "one-table" in page else []) for page in PAGES],
)
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
