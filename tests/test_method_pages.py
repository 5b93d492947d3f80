"""Every method has a page, its tables are what the program says, and what it tells people to type exists."""

from __future__ import annotations

import re
import shlex
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from programs import program
from solera.baselines import BASELINES, configure
from solera.cli import WRONG_USE, app
from solera.cli.lazy import subcommands
from solera.cli.options import parse_pairs
from solera.core.errors import SoleraError
from solera.data.datasets import names as dataset_names
from solera.evaluate import get
from solera.methods import PLUGINS, find, names
from solera.runs.presets import preset, presets
from solera.study.records import Record, Store
from solera_research.papers import find_table
from solera_research.papers.cells import select

ROOT = Path(__file__).parent.parent
METHOD_PAGES = sorted((ROOT / "docs" / "methods").glob("*.md"))
INDEX = ROOT / "docs" / "methods" / "README.md"
CHOICE = INDEX.with_name("which.md")  # between methods: a page of none
PAPER_PAGES = sorted((ROOT / "docs" / "results" / "papers").glob("*.md"))
OTHER_PAGES = [
    *(
        ROOT / "docs" / "results" / f"{name}.md"
        for name in ("reproduction", "attacks", "differential-privacy")
    ),
    ROOT / "docs" / "federation" / "privacy.md",
]
PAGES = (*METHOD_PAGES, *PAPER_PAGES, *OTHER_PAGES)
KINDS = (
    "choices",
    "options",
    "plugin choices",
    "plugin options",
    "presets",
    "baseline options",
    "figures",
    "reproduction",
    "papers",
    "unique runs",
    "not attempted",
    "attacks on single uploads",
    "attacks among touched rows",
    "attacks on sums",
    "attacks on anybody in a sum",
    "attacks by mode",
    "modes",
    "other poisoning",
    "attack commands",
    "poisoning",
    "poisoning commands",
    "differential privacy",
    "privacy by users",
    "privacy settings",
)
SECTIONS = (
    "Paper",
    "Equations",
    "One ",  # round, or epoch
    "The five choices",
    "Options",
    "Presets",
    "Where paper and code differ",
    "Left out",
    "Command",
    "Expected figures",
)


make_pages = program("docs/make_pages")


def marked(kind: str, *pages: Path) -> set[str]:
    """All names in the marks of that kind, on some pages or on all."""
    texts = (page.read_text(encoding="utf-8") for page in pages or PAGES)
    found = (names for text in texts for names in re.findall(rf"<!-- {kind}: (.+) -->", text))
    return {name for names in found for name in names.split(", ")}


def test_every_method_and_baseline_has_a_page():
    assert marked("choices") == set(names())
    assert marked("baseline options") == set(BASELINES)
    assert marked("figures") == {
        name for name, preset in presets().items() if preset.published and preset.dataset == "ml-100k"
    }


def test_every_option_is_shown_on_a_page():
    def options_of(methods):
        return {field for name in methods for field in type(find(name).config).model_fields}

    assert options_of(names()) == options_of(marked("options"))
    of_plugins = {name: set(plugin.config.model_fields) for name, plugin in PLUGINS.items()}
    shown = options_of(marked("options")).union(*(of_plugins[name] for name in marked("plugin options")))
    assert set().union(*of_plugins.values()) <= shown


@pytest.mark.parametrize(
    "page", [page for page in METHOD_PAGES if page not in (INDEX, CHOICE)], ids=lambda page: page.stem
)
def test_sections_stand_in_order(page):
    titles = re.findall(r"^## (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(titles) == len(SECTIONS)
    assert [title for title, start in zip(titles, SECTIONS, strict=True) if not title.startswith(start)] == []


def test_index_names_everything():
    text = INDEX.read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[.+?\]\((.+?)\) \| (.+?) \|", text, re.MULTILINE)
    assert {page for page, _ in rows} == {page.name for page in METHOD_PAGES} - {INDEX.name, CHOICE.name}
    assert {name for _, cell in rows for name in re.findall(r"`(.+?)`", cell)} == {*names(), *BASELINES}
    for page, cell in rows:
        there = INDEX.parent / page
        blocks = marked("choices", there) | marked("baseline options", there)
        assert set(re.findall(r"`(.+?)`", cell)) <= blocks, page
    plugins = re.findall(r"^\| `([\w-]+)` \| ([^|]+) \| \[([\w ]+)\]", text, re.MULTILINE)
    assert {name: f"{about} ({paper})" for name, about, paper in plugins} == {
        name: plugin.about for name, plugin in PLUGINS.items()
    }
    examples = re.findall(r"^solera train .*--plugin ([\w-]+)", text, re.MULTILINE)
    assert set(examples) == set(PLUGINS)


# The generator


def test_pages_are_fresh(capsys):
    assert make_pages.main(["--check"], ROOT) == 0, capsys.readouterr().out


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_that_begins_ends(page):
    text = page.read_text(encoding="utf-8")
    begin = len(re.findall(rf"<!-- (?:{'|'.join(KINDS)})(?:: .+)? -->", text))
    assert len(make_pages.BLOCK.findall(text)) == begin == text.count("<!-- end -->")


@pytest.fixture
def copy(tmp_path):
    """The documents somewhere else."""
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "README.md", tmp_path)
    return tmp_path


def test_a_stale_page_is_named_and_rewritten(copy, capsys):
    make_pages.main([], copy)
    page = copy / "docs" / "methods" / "fedmf.md"
    fresh = page.read_text(encoding="utf-8")
    stale = fresh.replace("| dot with user vector |", "| cross product |")
    assert stale != fresh
    page.write_text(stale, encoding="utf-8")
    capsys.readouterr()

    assert make_pages.main(["--check"], copy) == 1
    assert capsys.readouterr().out == "stale: docs/methods/fedmf.md\n"
    assert page.read_text(encoding="utf-8") == stale
    assert make_pages.main([], copy) == 0
    assert page.read_text(encoding="utf-8") == fresh


def record(protocol: str, seed: int, hr: float, **changes) -> Record:
    figures = {"hr@10": hr, "ndcg@10": hr / 2}
    both = {"sampled99": figures, "full": {name: value / 10 for name, value in figures.items()}}
    fields = {
        "label": "whatever",
        "kind": "method",
        "preset": "paper:pfedrec/ml-100k",
        "dataset": "ml-100k",
        "protocol": protocol,
        "seed": seed,
        "config": preset("paper:pfedrec/ml-100k").config(seed=seed).model_dump(mode="json"),
        "environment": {},
        "code": {},
        "by_activity": [],
        "seconds": 60.0,
        "ranks": None if protocol == "paper" else [],
        "ranks_train": [],
        "result": {
            "format": 2,
            "method": "pfedrec",
            "dataset": "ml-100k",
            "protocol": protocol,
            "leaky": protocol == "paper",
            "seed": seed,
            "users": 943,
            "items": 1682,
            "evaluated_users": 943,
            "test": None if protocol == "paper" else both,
            "test_train": both,
            "validation": both,
            "options": {},
            "seconds_per_round": 0.5 + seed,
        },
    }
    return Record.model_validate(fields | changes)


def test_figures_are_means_over_the_records(copy):
    of_a_table = {"preset": None, "label": "pfedrec: PFedRec"}  # of equal settings
    runs = [record("paper", 1, 0.76, **of_a_table), record("paper", 0, 0.72), record("strict", 0, 0.5)]
    runs += [record("strict", 5, 0.9, preset=None, label="the same without its name")]
    for run in runs:
        table = "papers" if run.protocol == "paper" else "results"
        Store(copy / "experiments" / "records" / table, Record).put(run)
    make_pages.main([], copy)

    page = (copy / "docs" / "methods" / "pfedrec.md").read_text(encoding="utf-8")
    assert "| published | 0.716 / 0.434 | | | | |" in page
    # 0.72 and 0.76: mean 0.74, sd 0.04 / √2; the others are a half, a tenth and a twentieth of that
    sampled, full = "0.740 ± 0.028 / 0.370 ± 0.014", "0.074 ± 0.003 / 0.037 ± 0.001"
    assert f"| `paper` (leaky) | {sampled} | {full} | | | 0, 1 |" in page
    strict = "0.500 / 0.250 | 0.050 / 0.025"
    assert f"| `strict` | {strict} | {strict} | 0 |" in page
    assert "`solera train --preset paper:pfedrec/ml-100k --seed S --protocol strict`" in page

    others = (copy / "docs" / "methods" / "fedrap.md").read_text(encoding="utf-8")
    assert "| published | 0.971 / 0.878 |\n\nMean" in others
    (row,) = re.findall(
        r"^\| `paper:pfedrec/ml-100k` .*$",
        (copy / "docs" / "results" / "reproduction.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    away = "+0.024 / -0.064"  # 0.74 − 0.716 and 0.37 − 0.434
    assert row.endswith(f"| 0.716 / 0.434 | {sampled} | {away} |")


# What the pages tell people to type


@cache
def all_commands() -> Any:
    """They take a while to build, and there are many lines to check."""
    program: Any = typer.main.get_command(app)
    return subcommands(program)


def check(command: str) -> None:
    """Parse a command as the program would, and look up all it names; nothing is trained."""
    program, name, *rest = shlex.split(command)
    assert program == "solera"
    given = all_commands()[name].make_context(name, rest).params
    options = parse_pairs(given.get("option") or [], "")
    match name:
        case "train" | "attack" | "poison":
            chosen = preset(given["preset"]) if given["preset"] else None
            assert (given["method"] is None) == bool(chosen), "a method or a preset"
            assert (chosen.dataset if chosen else given["data"]) in dataset_names()
            if chosen:
                assert chosen.method
                find(chosen.method, chosen.options | options, chosen.plugins)
            elif given["method"] in BASELINES:
                configure(given["method"], options)
            else:
                defended = ["robust"] if given.get("defence", "none") != "none" else []
                find(given["method"], options, [*(given["plugin"] or []), *defended])
            get(given["protocol"] or "strict")
        case "methods":
            assert given["presets"] or find(given["name"], {}, given["plugin"] or [])
        case "sweep":
            find(given["method"], options, given["plugin"] or [])
            assert given["data"] in dataset_names()
        case "paper":
            inner = subcommands(all_commands()["paper"])[rest[0]].make_context(rest[0], rest[1:]).params
            if inner.get("name"):
                assert select(*find_table(inner["name"]), inner["data"], inner["only"], None)
        case "compare":
            assert set(given["methods"]) <= {*names(), *BASELINES}
            assert given["data"] in {*dataset_names(), "plays.csv"}
        case "report":
            assert given["runs"]
        case "blend":
            assert given["first"] != given["second"]
        case _:
            raise AssertionError(f"nothing here checks solera {name}")


def commands(page: Path) -> list[str]:
    blocks = re.findall(r"```console\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_exist(page):
    assert commands(page), "a page without a command"
    for command in commands(page):
        check(command)


def test_every_method_and_baseline_has_a_command():
    lines = [shlex.split(command) for page in PAGES for command in commands(page)]
    assert {line[2] for line in lines if line[1] == "train"} >= {*names(), *BASELINES}


@pytest.mark.parametrize(
    "wrong",
    [
        "solera train fedmff --data ml-100k",
        "solera train fedmf --data ml-100kk",
        "solera train fedmf",
        "solera train fedmf --data ml-100k --plugin plgcc",
        "solera train local --data ml-100k --plugin plgc",
        "solera train fedmf --data ml-100k -o rank=2",
        "solera train fedmf --data ml-100k -o local_epochs=none",
        "solera train fedmf --data ml-100k --protocol lenient",
        "solera train fedmf --data ml-100k --epochs 3",
        "solera train --preset paper:fedmf/ml-100k",
        "solera train mff --data ml-100k",
        "solera train popularity --data ml-100k -o reg=1",
        "solera methods nothing",
        "solera trian fedmf",
    ],
)
def test_a_wrong_command_is_found(wrong):
    with pytest.raises((SoleraError, WRONG_USE, AssertionError, KeyError)):
        check(wrong)
