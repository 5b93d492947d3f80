"""What the documents tell people to type works as it stands there."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import cache, partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import polars
import pytest

from in_process import solera
from programs import program

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
WEB = ROOT / "web"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
LOOKED_AT = (  # the pages behind the doors of the first page
    "index.html",
    "start/first-results.html",
    "start/one-table.html",
    "concepts/introduction.html",
    "concepts/leak.html",
    "guides/add-a-method.html",
    "guides/device.html",
    "federation/deployment.html",
    "methods/index.html",
    "results/board.html",
)
NEEDS_DATA = pytest.mark.skipif(
    not os.environ.get("SOLERA_DATA"),
    reason="SOLERA_DATA is not set: it names the folder that holds the data sets",
)


def block(text: str, after: str, language: str) -> str:
    """The code block that follows a marker."""
    found = re.search(rf"{re.escape(after)}.*?```{language}\n(.*?)```", text, re.DOTALL)
    assert found, f"no {language} block after {after!r}"
    return found[1]


@pytest.mark.parametrize("data", ["small", pytest.param("real", marks=[pytest.mark.slow, NEEDS_DATA])])
def test_quick_start(data, tmp_path, small_ml_100k, monkeypatch):
    commands = block(README, "<!-- quick start", "console").strip().splitlines()
    assert len(commands) == 4
    if data == "small":
        monkeypatch.setenv("SOLERA_DATA", str(small_ml_100k))
        commands.pop()  # looks at another set
    printed = []
    for command in commands:
        program, *arguments = shlex.split(command)
        assert program == "solera"
        done = solera(*arguments, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout)
    assert "full ranking" in printed[0]
    assert "For user 196" in printed[1]
    assert data == "small" or "LEAKY" in printed[3]


@pytest.mark.slow
@NEEDS_DATA
def test_the_first_example_prints_what_is_shown(tmp_path):
    start = (ROOT / "docs/start/first-results.md").read_text(encoding="utf-8")
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


def test_the_command_for_the_last_row_of_the_first_page_has_the_settings_of_its_record():
    from solera.methods import find
    from solera.study.records import Record, Store

    given = re.search(r"`solera train fedslist --data ml-100k ([^`]+)`", README)
    assert given
    options = dict(each.split("=") for each in given[1].split() if "=" in each)
    asked = find("fedslist", options).config.model_dump(mode="json")
    record = Store(ROOT / "experiments" / "records" / "board.parquet", Record).find(
        "ml-100k/fedslist--strict--s0"
    )
    assert record
    recorded = find("fedslist", record.config["options"])  # options that are newer have their defaults
    assert recorded.config.model_dump(mode="json") == asked


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


@pytest.mark.parametrize("name", ["make_commands", "make_scale"])
def test_what_is_made_from_the_program_is_fresh(name, capsys):
    assert program(f"docs/{name}").main(["--check"], ROOT) == 0, capsys.readouterr().out


@pytest.mark.parametrize("name", ["make_commands", "make_scale"])
def test_what_is_stale_is_named_and_made_anew(name, tmp_path, capsys):
    made = program(f"docs/{name}")
    assert made.main(["--check"], tmp_path) == 1
    assert "stale: docs/" in capsys.readouterr().out
    assert made.main([], tmp_path) == 0
    assert made.main(["--check"], tmp_path) == 0


def test_the_site_leaves_no_link_to_what_it_lacks():
    hooks = program("docs/site_hooks")
    page = (
        "[`a.py`](../../src/solera/a.py), [results](results.md), [all](../experiments), [R](../README.md#x)"
    )
    assert hooks.on_page_markdown(page) == "`a.py`, [results](results.md), all, R"


# What holds for every page


def tables(text: str) -> list[list[str]]:
    return [table.splitlines() for table in re.findall(r"(?:^ *\|.*\n?)+", text, re.MULTILINE)]


def test_readme_is_short():
    assert len(README.splitlines()) <= 150
    assert max(len(table) - 2 for table in tables(README)) <= 10


def test_there_are_at_most_seventy_thousand_words_of_prose(capsys):
    words = program("docs/words")
    assert words.main([], ROOT) == 0
    assert words.Words.sum(words.pages(ROOT).values()).prose <= 70_000, capsys.readouterr().out


def test_no_cell_says_that_something_is_missing():
    gaps = re.compile(r"\| *(?:not run|not measured yet|failed) *\|")
    assert [str(page) for page in PAGES if gaps.search(page.read_text(encoding="utf-8"))] == []


def test_links_lead_to_files_that_are_there():
    """Those within the site and their anchors are checked by `mkdocs build --strict`."""
    for page in PAGES:
        text = re.sub(
            r"^ *(```+).*?^ *\1$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
        )
        links = re.findall(r"\]\((?!\w+:|#)([^)#\s]+)", text)
        assert [link for link in links if not (page.parent / link).exists()] == [], page


def test_commands_on_all_pages_are_known():
    """Each line in a console block is a command with options that it has."""
    import typer

    from solera.cli import app
    from solera.cli.lazy import subcommands

    top = typer.main.get_command(app)
    below = cache(subcommands)
    for page in (page for page in PAGES if "reference/commands" not in str(page)):
        for line in console_lines(page.read_text(encoding="utf-8")):
            command, words = top, line
            while words and (found := below(command).get(words[0])):
                command, words = found, words[1:]
            assert not below(command) or command is not top, f"{page}: {line}"
            known = {flag for one in command.params for flag in (*one.opts, *one.secondary_opts)}
            given = {word.partition("=")[0] for word in words if re.match(r"-[a-zA-Z-]", word)}
            assert given <= known | {"--help"}, f"{page}: {line}"


def console_lines(text: str) -> Iterator[list[str]]:
    """The words of every line that starts solera, without its name."""
    for block_ in re.findall(r"^ *```console\n(.*?)```", text, re.DOTALL | re.MULTILINE):
        for line in block_.replace("\\\n", " ").splitlines():
            words = shlex.split(re.sub(r" +# .*| >.*", "", line))
            if words[:1] == ["solera"]:
                yield words[3:] if words[1] == "--import" else words[1:]


@pytest.mark.slow
def test_the_site_in_a_browser(tmp_path):
    """Ten pages: no other host is asked, axe finds nothing serious, and the search finds a page."""
    pytest.importorskip("mkdocs", reason="needs the docs extra")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True)
    loads = re.compile(r"""<(?:script|img|link|iframe)\b[^>]*\b(?:src|href)=["'](?:https?:)?//""")
    made = list(tmp_path.rglob("*.html"))
    assert len(made) > 80
    assert [page.name for page in made if loads.search(page.read_text(encoding="utf-8"))] == []

    if not any(map(shutil.which, BROWSERS)) or not (WEB / "node_modules").is_dir():
        pytest.skip("needs Chromium, and `npm ci` in web/")
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    handler.log_message = lambda *given: None  # type: ignore[attr-defined]
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/"
        look = ["node", "tests/site.mjs"]
        served, opened = (
            subprocess.run([*look, *more], cwd=WEB, capture_output=True, text=True, check=False)
            for more in (
                (address, "sums without noise", *LOOKED_AT),
                (f"{tmp_path.as_uri()}/", "sums without noise"),
            )
        )
        server.shutdown()
    for done in (served, opened):  # by a server, and from the disk
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["result"] == "federation/secure-aggregation.html"
    seen = json.loads(served.stdout)
    assert len(seen["found"]) == 2 * len(LOOKED_AT)
    for page in seen["found"]:
        assert (page["violations"], page["troubles"]) == ([], []), page["page"]
        assert page["screens"] < 12, page["page"]


def lines_without_their_figures(page: str) -> list[str]:
    """Rows of a table that state a figure which no page that they link to has."""
    found = []
    for line in page.splitlines():
        linked = re.findall(r"\]\(([^)#]+\.md)", line)
        behind = "".join((ROOT / "docs" / "methods" / path).resolve().read_text("utf-8") for path in linked)
        stated = re.findall(r"(?<![\d.])0\.\d{3,4}(?!\d)", line) if line.startswith("|") else []
        found += [line] * any(figure not in behind for figure in stated)
    return found


def test_figures_that_choose_a_method_are_those_of_the_pages_behind_them() -> None:
    page = (ROOT / "docs" / "methods" / "which.md").read_text("utf-8")
    assert len(re.findall(r"0\.\d{3,4}", page)) > 20
    assert lines_without_their_figures(page) == []
    assert lines_without_their_figures(page.replace("0.2002", "0.2003"))
