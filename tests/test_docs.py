"""What the documents tell people to type works as it stands there."""

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

from programs import program

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
NEEDS_DATA = pytest.mark.skipif(
    not os.environ.get("SOLERA_DATA"),
    reason="SOLERA_DATA is not set: it names the folder that holds the data sets",
)


def block(text: str, after: str, language: str) -> str:
    """The code block that follows a marker."""
    found = re.search(rf"{re.escape(after)}.*?```{language}\n(.*?)```", text, re.DOTALL)
    assert found, f"no {language} block after {after!r}"
    return found[1]


@NEEDS_DATA
def test_quick_start(tmp_path):
    commands = block(README, "<!-- quick start", "console").strip().splitlines()
    assert len(commands) == 4
    printed = []
    for command in commands:
        program, *arguments = shlex.split(command)
        assert program == "solera"
        done = subprocess.run(
            [sys.executable, "-m", "solera", *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout)
    assert "full ranking" in printed[0]
    assert "For user 196" in printed[1]
    assert "LEAKY" in printed[3]


@NEEDS_DATA
def test_the_first_example_prints_what_is_shown(tmp_path):
    start = (ROOT / "docs/start.md").read_text(encoding="utf-8")
    shown = block(README, "solera train pfedrec --data ml-100k --rounds 20", "text")
    assert block(start, "solera train pfedrec --data ml-100k --rounds 20", "text") == shown
    command = "train pfedrec --data ml-100k --rounds 20 --out runs/pfedrec"
    done = subprocess.run(
        [sys.executable, "-m", "solera", *command.split()],
        cwd=tmp_path,
        env={**os.environ, "COLUMNS": "80"},
        capture_output=True,
        text=True,
        check=True,
    )
    printed = done.stdout.split("run: ")[0]  # where the run is kept, and what to do with it
    words, numbers = (
        [re.findall(pattern, text) for text in (shown, printed)] for pattern in (r"[^\d\s.]+", r"\d\.\d{4}")
    )
    assert words[1] == words[0]
    # Another processor rounds otherwise, which moves the ranks of a few of the 943 users.
    assert [float(each) for each in numbers[1]] == pytest.approx(
        [float(each) for each in numbers[0]], abs=4 / 943
    )


def test_python_example(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)
    rows = [(user, item) for user in range(150, 250) for item in draw.choice(60, 12, replace=False)]
    frame = polars.DataFrame({"user": [u for u, _ in rows], "item": [int(i) for _, i in rows]})
    frame.with_row_index("timestamp").write_csv("ratings.csv")
    script = block(README, "<!-- python", "python")
    assert len([line for line in script.splitlines() if line]) <= 20
    names: dict = {}
    exec(script, names)
    printed = capsys.readouterr().out
    assert "<my films: 100 users, 60 items, 1,200 interactions, with times>" in printed
    assert re.search(r"^5 \d+ ", printed, re.MULTILINE)
    assert "<svg" in Path("report.html").read_text()
    everybody = polars.read_parquet("everybody.parquet")
    assert everybody.height == 100 * 10
    mine = [each.item for each in names["run"].recommend("196")]
    assert everybody.filter(user="196")["item"].to_list() == mine
    assert [each.item for each in names["again"].recommend("196")] == mine


def test_method_in_ten_lines():
    from solera.core.context import MethodConfig
    from solera.core.method import Method

    names: dict = {}
    exec(block((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), "## Add a method", "python"), names)
    method = names["my_method"](MethodConfig())
    assert isinstance(method, Method)
    assert method.choices["aggregate"] == "mean"


def test_methods_table_is_what_the_program_says():
    from solera.methods import find, names

    lines = re.findall(r"^\| `([\w-]+)` \| (.*) \|$", README, re.MULTILINE)
    rows = {name: choices for name, choices in lines if choices.count(" | ") == 4}
    assert rows == {name: " | ".join(find(name).choices.values()) for name in names()}


def test_plugins_table_is_what_the_program_says():
    from solera.methods import PLUGINS

    lines = re.findall(r"^\| `([a-z][\w-]+)` \| ([^|]*) \| ([\w ]+) \|$", README, re.MULTILINE)
    assert {name: f"{about} ({paper})" for name, about, paper in lines} == {
        name: plugin.about for name, plugin in PLUGINS.items()
    }


def test_every_dependency_has_a_reason():
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [
        *project["dependencies"],
        *(d for extra in project["optional-dependencies"].values() for d in extra),
    ]
    names = {re.split(r"[^\w-]", line)[0] for line in wanted}
    reasons = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    assert {name for name in names if not re.search(rf"[| ]{name}[ ,|]", reasons)} == set()


@pytest.mark.parametrize("name", ["make_commands", "make_papers", "make_scale"])
def test_what_is_made_from_the_program_is_fresh(name, capsys):
    assert program(f"docs/{name}").main(["--check"], ROOT) == 0, capsys.readouterr().out


@pytest.mark.parametrize("name", ["make_commands", "make_scale"])
def test_what_is_stale_is_named_and_made_anew(name, tmp_path, capsys):
    for folder in ("reference", "images"):
        (tmp_path / "docs" / folder).mkdir(parents=True)
    made = program(f"docs/{name}")
    assert made.main(["--check"], tmp_path) == 1
    assert "stale: docs/" in capsys.readouterr().out
    assert made.main([], tmp_path) == 0
    assert made.main(["--check"], tmp_path) == 0


def test_every_command_is_in_the_reference():
    text = (ROOT / "docs/reference/commands.md").read_text(encoding="utf-8")
    for name in ("train", "data audit", "device recommend", "federation run"):
        assert re.search(rf"^#+ solera {name}$", text, re.MULTILINE), name


def test_every_page_is_in_the_navigation():
    named = set(
        re.findall(
            r"^ +- (?:[\w ]+: )?([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE
        )
    )
    assert named == {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}


def test_links_out_of_the_site_become_text():
    hooks = program("docs/site_hooks")
    page = (
        "[`a.py`](../../src/solera/a.py), [results](results.md), [all](../experiments), [R](../README.md#x)"
    )
    assert hooks.on_page_markdown(page) == "`a.py`, [results](results.md), all, R"


@pytest.mark.slow
def test_the_site_asks_no_other_host(tmp_path):
    pytest.importorskip("mkdocs", reason="needs the docs extra")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True)
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > 40
    loads = re.compile(r"""<(?:script|img|link|iframe)\b[^>]*\b(?:src|href)=["'](?:https?:)?//""")
    assert [page.name for page in pages if loads.search(page.read_text(encoding="utf-8"))] == []


def test_no_placeholder_is_left():
    for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        assert not re.search(r"@[A-Z_]+@", path.read_text(encoding="utf-8")), path.name
