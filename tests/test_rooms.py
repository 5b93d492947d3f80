"""The rooms of the package and the one way their dependencies go."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import solera
from solera.cli.catalogue import catalogue

ROOT = Path(solera.__file__).parent
LIBRARY = {"core", "math", "data", "methods", "engine", "evaluate", "baselines"}
ALLOWED = {
    "core": set(),
    "math": {"core"},
    "methods": {"core", "math"},
    "data": {"core"},
    "dp": {"core"},
    "coding": {"core"},
    "evaluate": {"core", "data"},
    "baselines": {"core", "math", "data"},
    "engine": {"core", "math", "data"},
    "testing": {"core", "data", "methods", "engine"},
    "runs": LIBRARY | {"dp", "coding"},
    "device": {"core", "math", "data", "methods", "engine", "runs", "dp", "privacy"},
    "privacy": {"core"},
    "federation": (LIBRARY - {"baselines"}) | {"runs", "device", "privacy", "dp"},
    "service": {"core", "device", "federation"},
    "study": LIBRARY | {"runs", "dp"},
    "report": {"core", "data", "evaluate", "runs", "study"},
    "estimators": LIBRARY | {"runs"},
    "serving": {"core", "runs", "estimators"},
    "adapters": {"core", "math", "data", "methods", "engine", "runs", "estimators"},
    "api": LIBRARY | {"runs", "dp", "report", "estimators"},
    "cli": LIBRARY
    | {
        "runs",
        "api",
        "estimators",
        "serving",
        "adapters",
        "study",
        "device",
        "service",
        "federation",
        "privacy",
        "dp",
        "report",
    },
}
# Rooms in rooms: each may use those before it.
WITHIN = {
    "federation": ["common", "web", "secure", "node", "server", "reports", "operate", "flower"],
}
FILES = sorted(ROOT.rglob("*.py"))


def imports(source: str, package: list[str]) -> set[str]:
    """Full names of all that is imported anywhere in a file, in functions and for type checking too."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else []
            module = ".".join([*base, *filter(None, [node.module])])
            found |= {f"{module}.{alias.name}" for alias in node.names}
    return found


@cache
def imported_by(file: Path) -> set[str]:
    return imports(file.read_text(encoding="utf-8"), ["solera", *file.relative_to(ROOT).parent.parts])


def room_of(file: Path) -> str:
    return room(".".join(file.relative_to(ROOT).with_suffix("").parts))


def room(name: str) -> str:
    return name.split(".", maxsplit=1)[0]


def rooms(names: set[str]) -> set[str]:
    found = {room(name.removeprefix("solera.")) for name in names if name.startswith("solera.")}
    return found - {"__version__"}


def test_imports_are_found_wherever_they_stand() -> None:
    source = """
import solera.cli
from solera import runs
from .store import x
from ..core.spec import Leaf
from .. import data
def f():
    from solera.study.records import y
"""
    assert rooms(imports(source, ["solera", "engine"])) == {"cli", "runs", "engine", "core", "data", "study"}


def test_every_room_is_known() -> None:
    """A new room is entered here, with what it may use."""
    assert {room_of(file) for file in FILES} == set(ALLOWED) | {"__init__", "__main__"}


@pytest.mark.parametrize("room", ALLOWED)
def test_dependencies_go_one_way(room: str) -> None:
    files = [file for file in FILES if room_of(file) == room]
    wrong = {
        str(file.relative_to(ROOT)): sorted(used)
        for file in files
        if (used := rooms(imported_by(file)) - ALLOWED[room] - {room})
    }
    assert files
    assert wrong == {}


def test_rooms_form_no_circle() -> None:
    assert list(TopologicalSorter(ALLOWED).static_order())  # raises CycleError


@pytest.mark.parametrize("outer", WITHIN)
def test_dependencies_within_a_room_go_one_way(outer: str) -> None:
    order = WITHIN[outer]
    inner = {path.stem for path in (ROOT / outer).iterdir() if path.name != "__pycache__"} - {"__init__"}
    assert inner == set(order)
    wrong = [
        (str(file.relative_to(ROOT)), name)
        for file in (ROOT / outer).rglob("*.py")
        for name in imported_by(file)
        if name.startswith(f"solera.{outer}.") and file.parent != ROOT / outer
        if order.index(name.split(".")[2])
        > order.index(file.relative_to(ROOT / outer).parts[0].removesuffix(".py"))
    ]
    assert wrong == []


def test_files_form_no_circle() -> None:
    """Imports for type checking alone count as well."""
    modules = {".".join(["solera", *file.relative_to(ROOT).with_suffix("").parts]): file for file in FILES}
    graph = {
        module: {
            used
            for name in imported_by(file)
            for used in (name, name.rpartition(".")[0])
            if used in modules and used != module
        }
        for module, file in modules.items()
    }
    assert list(TopologicalSorter(graph).static_order())


def test_only_the_outer_rooms_know_of_runs() -> None:
    users = {room_of(file) for file in FILES if "runs" in rooms(imported_by(file))}
    assert users <= {
        "runs",
        "estimators",
        "serving",
        "adapters",
        "api",
        "cli",
        "study",
        "device",
        "federation",
        "report",
    }


def test_nothing_knows_of_research() -> None:
    """It is a package of its own, which is not in the wheel."""
    users = [file for file in FILES if "solera_research" in file.read_text(encoding="utf-8")]
    assert users == []


def test_secure_aggregation_knows_the_core_alone() -> None:
    files = (ROOT / "privacy" / "secagg").rglob("*.py")
    used = {name for file in files for name in imported_by(file) if name.startswith("solera.")}
    allowed = ("solera.core.", "solera.privacy.secagg", "solera.privacy.identity")
    assert {name for name in used if not name.startswith(allowed)} == set()


def test_importing_the_package_loads_nothing_heavy() -> None:
    """`solera --help` must not wait for torch."""
    code = "import sys, solera; print(*{'torch', 'polars', 'flwr', 'solera.api'} & set(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.split() == []


def test_the_command_line_loads_nothing_heavy_before_it_knows_what_to_do() -> None:
    code = "import sys, solera.cli; print(*{'torch', 'polars', 'pydantic', 'flwr'} & set(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert loaded.stdout.split() == []


@pytest.mark.parametrize(
    "command",
    [["methods"], ["methods", "fedmf", "--json"], ["methods", "--presets"], ["data", "show"], ["--version"]],
)
def test_commands_that_compute_nothing_load_no_torch(command: list[str]) -> None:
    catalogue()  # the first command after a change of the source asks the package itself
    code = f"""
import sys
from solera.cli import main
sys.argv = ["solera", *{command!r}]
try:
    main()
finally:
    print("\\nloaded:", *{{"torch", "polars", "pydantic"}} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "loaded:"


def test_methods_know_no_optimiser() -> None:
    """A method names its optimiser; the engine has it."""
    for file in (ROOT / "methods").rglob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        assert not [name for name in imported_by(file) if name.startswith("torch.optim")], file.name
        named = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr == "optim"]
        assert not named, file.name
