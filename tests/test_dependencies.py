"""Every package that is imported is declared, and every one that is declared has its reason in the docs."""

from __future__ import annotations

import ast
import json
import re
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import solera

ROOT = Path(__file__).parent.parent
SOURCE = Path(solera.__file__).parent
RESEARCH = ROOT / "research" / "src"
TOOLS = {"dev", "docs", "research", "web"}  # of those who work on the package
BROUGHT_ALONG = {"ipython", "pytest"}  # imported only where a notebook or a test is at work already
OTHERS = {"lenskit", "rectools"}  # imported only by adapters, for those who use them
OTHERS |= {"xbmc", "xbmcaddon", "xbmcgui", "xbmcplugin"}  # of Kodi, in which the add-on runs


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def distribution(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found, requirement
    return normal(found[0])


def declared() -> dict[str, set[str]]:
    """The distributions of every extra; those that all have under the empty name, and the page's from npm."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    listed = {"": project["dependencies"], **project["optional-dependencies"]}
    found = {extra: {distribution(each) for each in some} - {"solera"} for extra, some in listed.items()}
    page = json.loads((ROOT / "web" / "package.json").read_text(encoding="utf-8"))
    research = tomllib.loads((ROOT / "research" / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found["research"] = {distribution(each) for each in research["dependencies"]} - {"solera"}
    return found | {"web": {*page["dependencies"], *page["devDependencies"]}}


def imported(source: str) -> set[str]:
    """The packages that are imported anywhere in a file, in functions and for type checking too."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found - sys.stdlib_module_names - {"solera", "solera_research"}


installed = cache(packages_distributions)


def undeclared(package: str, known: set[str]) -> bool:
    return known.isdisjoint(map(normal, installed().get(package, [package])))


def test_imports_are_found_wherever_they_stand() -> None:
    source = """
import json, scipy.sparse
from solera.core import errors
from . import other
def f():
    from sklearn.manifold import TSNE
"""
    assert imported(source) == {"scipy", "sklearn"}
    assert undeclared("sklearn", {"scipy"})
    assert not undeclared("sklearn", {"scikit-learn"})
    assert undeclared("no_such_package", {"scipy"})


def test_every_import_is_declared() -> None:
    extras = declared()
    known = {name for extra, some in extras.items() if extra not in TOOLS for name in some}
    assert extras["dev"] >= BROUGHT_ALONG
    missing: dict[str, list[str]] = {}
    for folder, more in ((SOURCE, set[str]()), (RESEARCH, extras["research"])):
        for file in sorted(folder.rglob("*.py")):
            for package in imported(file.read_text(encoding="utf-8")):
                if undeclared(package, known | BROUGHT_ALONG | OTHERS | more):
                    missing.setdefault(package, []).append(str(file.relative_to(folder)))
    assert missing == {}


def test_every_dependency_has_its_reason() -> None:
    """And there is no reason for one that is gone."""
    explained: dict[str, set[str]] = {}
    for line in (ROOT / "docs" / "reference" / "dependencies.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|") or cells[0] in {"package", "extra", "folder", "---"}:
            continue
        extra, names = (cells[0].strip("`"), cells[1]) if cells[0].startswith("`") else ("", cells[0])
        assert cells[-1], line
        explained.setdefault(extra, set()).update(map(normal, names.split(", ")))
    assert explained == {extra: some for extra, some in declared().items() if some}  # not former names
