"""Count what a reader of the source has to hold in mind, in this tree or in another one.

python tools/concepts.py                  concepts, then files and lines by package
python tools/concepts.py --src OTHER/src  of another version
python tools/concepts.py --names          with what was counted
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

# What methods are made of, before and after the capabilities became base classes.
KINDS = {"Method", "ClosedForm", "Scorer", "View", "Loss", "Update", "Aggregate", "Solve", "LocalTraining"}
SETTINGS = 8  # names of a run's settings from which on a place counts as one that lists them
COMMANDS = """
import json, typer
from solera.cli import app
def walk(group):
    for name, each in getattr(group, "commands", {}).items():
        if not getattr(each, "where", "solera.").startswith("solera."):
            continue  # of a plug-in
        each = each.load() if hasattr(each, "load") else each
        yield from walk(each) if hasattr(each, "commands") else [len(each.params)]
print(json.dumps(list(walk(typer.main.get_command(app)))))
"""


class Source:
    """All files of a source folder, parsed."""

    def __init__(self, src: Path) -> None:
        self.src = src
        files = sorted((src / "solera").rglob("*.py"))
        self.trees = {str(file.relative_to(src / "solera")): ast.parse(file.read_text()) for file in files}
        self.lines = Counter[str]()
        self.files = Counter[str]()
        for file in files:
            room = file.relative_to(src / "solera").parts[0].removesuffix(".py")
            self.lines[room] += len(file.read_text().splitlines())
            self.files[room] += 1

    def classes(self) -> Iterator[tuple[str, ast.ClassDef]]:
        """Every class, with its file."""
        for file, tree in self.trees.items():
            yield from ((file, node) for node in ast.walk(tree) if isinstance(node, ast.ClassDef))

    def derived(self, roots: set[str]) -> set[str]:
        """These classes and all that derive from them, by name."""
        found = set(roots)
        while more := {
            node.name
            for _, node in self.classes()
            if node.name not in found and {ast.unparse(base).split(".")[-1] for base in node.bases} & found
        }:
            found |= more
        return found


def runtime_checkable(source: Source) -> list[str]:
    """Protocols that are asked for at run time."""
    return [
        node.name
        for _, node in source.classes()
        if any("runtime_checkable" in ast.unparse(each) for each in node.decorator_list)
    ]


def asked(source: Source) -> list[str]:
    """`isinstance` on kinds of methods: on their parts, and on what can be asked of these."""
    kinds = source.derived(KINDS | set(runtime_checkable(source)))
    return [
        f"{file}:{node.lineno}"
        for file, tree in source.trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance"
        if set(re.findall(r"\w+", ast.unparse(node.args[1]))) & kinds
    ]


def hooks_asked(source: Source) -> list[str]:
    """Places that ask whether a part overrides a hook (`does`)."""
    return [
        f"{file}:{node.lineno}"
        for file, tree in source.trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".does")
    ]


def twins(source: Source) -> list[str]:
    """Classes that exist twice, once with an analytic gradient (`…Knowing`)."""
    names = {node.name for _, node in source.classes()}
    return sorted(name for name in names if name.endswith("Knowing"))


def sums(source: Source) -> list[str]:
    """What adds up uploads: totals, and sums of one round."""
    inside = ("core/", "engine/")
    kinds = {node.name for file, node in source.classes() if file.startswith(inside)}
    return sorted(name for name in kinds if re.fullmatch(r".*(Totals|Sum|Sums)", name) and name != "FromSums")


def federations(source: Source) -> list[str]:
    """Classes that run rounds."""
    roots = {
        node.name
        for file, node in source.classes()
        if file.startswith("engine/") and any(getattr(each, "name", "") == "run_round" for each in node.body)
    }
    return sorted(source.derived(roots))


def lists_of_settings(source: Source) -> list[str]:
    """Functions and classes that name many of a run's settings, the list itself among them."""
    bases = {node.name: node for _, node in source.classes()}
    config = bases["RunConfig"]
    names = _fields(config) | set().union(
        *(_fields(bases[ast.unparse(base)]) for base in config.bases if ast.unparse(base) in bases)
    )
    found = []
    for file, tree in source.trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                given = {each.arg for each in (*node.args.args, *node.args.kwonlyargs)}
            elif isinstance(node, ast.ClassDef):
                given = _fields(node)
            else:
                continue
            if len(given & names) >= SETTINGS:
                found.append(f"{file}:{node.name}")
    return found


def _fields(node: ast.ClassDef) -> set[str]:
    return {ast.unparse(each.target) for each in node.body if isinstance(each, ast.AnnAssign)}


def commands(source: Source) -> list[int]:
    """The number of parameters of every command."""
    env = os.environ | {"PYTHONPATH": str(source.src)}
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS], env=env, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    found: list[int] = json.loads(done.stdout)
    return found


def main() -> None:
    """Print the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--src", type=Path, default=Path(__file__).parents[1] / "src")
    parser.add_argument("--names", action="store_true", help="list what was counted")
    args = parser.parse_args()
    source = Source(args.src.resolve())
    counted = {
        "runtime-checkable protocols": runtime_checkable(source),
        "isinstance on kinds of methods": asked(source),
        "questions to parts about hooks": hooks_asked(source),
        "twin classes": twins(source),
        "kinds of sum": sums(source),
        "federations": federations(source),
        "places that list the settings": lists_of_settings(source),
    }
    for name, found in counted.items():
        print(f"{len(found):6}  {name}" + (f": {', '.join(found)}" if args.names else ""))
    parameters = commands(source)
    print(f"{len(parameters):6}  commands, with {sum(parameters)} parameters\n")
    outer = {"deploy", "federation", "device", "service"}  # a room has had two names
    for room in sorted(source.files, key=lambda room: (room in outer, room)):
        print(f"{source.lines[room]:6} lines in {source.files[room]:3} files  {room}")
    inner = [room for room in source.files if room not in outer]
    total = sum(source.lines[room] for room in inner), sum(source.files[room] for room in inner)
    print(
        f"{total[0]:6} lines in {total[1]:3} files  without {', '.join(sorted(outer & source.files.keys()))}"
    )


if __name__ == "__main__":
    main()
