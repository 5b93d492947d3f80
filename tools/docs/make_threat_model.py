"""Writes docs/federation/threat-model.md from what the attacks in tests/adversary reached at last.

pytest tests/adversary --figures tests/adversary/figures.json      what they reach (and again with -m slow)
python tools/docs/make_threat_model.py                                   the page
python tools/docs/make_threat_model.py --check                           fail if the page is old
"""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent))

from blocks.markdown import folded

DOCS = Path(__file__).parents[2] / "docs" / "federation"
TESTS = DOCS.parents[1] / "tests" / "adversary"
FIGURES, PAGE, FRAME = TESTS / "figures.json", DOCS / "threat-model.md", DOCS / "threat-model.frame"

ADVERSARIES = {
    "lying server": "A server that lies",
    "server with nodes of its own": "A server with nodes of its own",
    "lying node": "A node that lies",
    "server of reports": "A server of threshold reports",
    "server with devices of its own": "A server of threshold reports with devices of its own",
    "helper": "A helper of threshold reports",
    "crash": "Kills, power cuts, full disks",
    "stranger": "A stranger on the network",
    "local program": "Another user or program on the same machine",
    "file": "A file from outside",
}

HELD = ("refused", "not looked at")  # how `before` begins where the attack is not known to have succeeded


class Attack(NamedTuple):
    """One test."""

    file: str
    test: str
    adversary: str
    promise: str
    before: str
    after: tuple[str, ...] = ()


def declared() -> Iterator[Attack]:
    """All attacks in the suite, as the source has them; those that are parameters of a test aside."""
    for path in sorted(TESTS.glob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.FunctionDef):
                continue
            for mark in node.decorator_list:
                if isinstance(mark, ast.Call) and getattr(mark.func, "id", "") == "attack":
                    adversary, promise = (ast.literal_eval(each) for each in mark.args)
                    before = ast.literal_eval(mark.keywords[0].value)
                    yield Attack(path.name, node.name, adversary, promise, before)


def measured() -> list[Attack]:
    """What every attack reached: a row for all variants of a test that have one promise."""
    found: dict[Attack, list[str]] = {}
    for name, figures in json.loads(FIGURES.read_text(encoding="utf-8")).items():
        file, test = name.split("::")
        row = Attack(file, test.split("[")[0], figures["adversary"], figures["promise"], figures["before"])
        after = found.setdefault(row, [])
        if figures["after"] not in after:
            after.append(figures["after"])
    return [row._replace(after=tuple(after)) for row, after in found.items()]


def page() -> str:
    """The whole page."""
    attacks = measured()
    missing = set(declared()) - {each._replace(after=()) for each in attacks}
    if missing:
        names = ", ".join(sorted(f"{each.file}::{each.test}" for each in missing))
        raise SystemExit(f"nothing is known of {names}: run it with --figures {FIGURES}")
    lines = [_count(attacks)]
    for adversary, title in ADVERSARIES.items():
        rows = [each for each in attacks if each.adversary == adversary]
        head = ("| promise | before | now | test |", "|---|---|---|---|")
        table = "\n".join((*head, *map(_row, rows)))
        lines += ["", f"### {title}", "", folded(f"{len(rows)} attacks", table)]
    return FRAME.read_text(encoding="utf-8").replace("<!-- attacks -->", "\n".join(lines))


def _count(attacks: list[Attack]) -> str:
    """How many there are, and how many of them succeeded before."""
    tests = len({(each.file, each.test) for each in attacks})
    succeeded = sum(not each.before.startswith(HELD) for each in attacks)
    return f"{len(attacks)} attacks by {tests} tests, none of which succeeds; {succeeded} succeeded before."


def _row(each: Attack) -> str:
    after = "; ".join(each.after[:3])
    cells = (each.promise, each.before, after, f"`{each.file}`: `{each.test}`")
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    if "--check" in sys.argv:
        if PAGE.read_text(encoding="utf-8") != page():
            raise SystemExit("docs/federation/threat-model.md is old: python tools/docs/make_threat_model.py")
    else:
        PAGE.write_text(page(), encoding="utf-8")
