"""What there is to choose from, without importing torch.

A wheel has it in a file, which hatch_build.py makes. Elsewhere the first command that asks writes it into the
user's cache, and the first one after a change of the source does so again. The shell completes names from it;
`solera --install-completion` turns that on.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import solera
from solera.core import extensions
from solera.core.files import write_atomically
from solera.data.files import cache_dir

PACKAGE = Path(solera.__file__).parent
SOURCES = ("core", "methods", "baselines", "data", "runs")  # what decides it
KINDS = (".py", ".toml")


def catalogue() -> dict[str, list[dict[str, Any]]]:
    """Methods with their choices and options, plug-ins, presets and data sets, as the package has them.

    Where files or packages may add to it, everything is asked of the package itself.
    """
    added = extensions.own_files() or extensions.entries("methods") or extensions.entries("datasets")
    return made() if added else _read()


@cache
def _read() -> dict[str, list[dict[str, Any]]]:
    for file in (PACKAGE / "catalogue.json", cached()):
        with suppress(OSError, ValueError):
            found: dict[str, list[dict[str, Any]]] = json.loads(file.read_text(encoding="utf-8"))
            return found
    whole, file = made(), cached()
    with suppress(OSError):
        for old in file.parent.glob(f"{file.name.rpartition('-')[0]}-*.json"):
            old.unlink(missing_ok=True)
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, json.dumps(whole))
    return whole


def cached() -> Path:
    """The file in the user's cache, by place, version and sources of the package."""
    sources = sorted(
        file for name in SOURCES for file in (PACKAGE / name).rglob("*.*") if file.suffix in KINDS
    )
    state = [solera.__version__, *((str(file), file.stat().st_mtime_ns) for file in sources)]
    place, digest = (hashlib.sha256(str(part).encode()).hexdigest()[:12] for part in (PACKAGE, state))
    return cache_dir() / "catalogue" / f"{place}-{digest}.json"


def made() -> dict[str, list[dict[str, Any]]]:
    """The same, asked of the package."""
    from solera.baselines import BASELINES
    from solera.data.registry import known_datasets
    from solera.methods import PLUGINS, find, names
    from solera.runs.presets import presets

    return {
        "methods": [
            {"name": name, **find(name).choices, "paper": find(name).paper, "options": options_of(find(name))}
            for name in names()
        ],
        "plugins": [{"name": name, "about": plugin.about} for name, plugin in PLUGINS.items()],
        "baselines": [{"name": name} for name in BASELINES],
        "presets": [
            entry.model_dump(mode="json") | {"full_method": entry.full_method} for entry in presets().values()
        ],
        "datasets": [
            {
                "name": entry.name,
                "folder": entry.home,
                "about": entry.about,
                "page": entry.page,
                "licence": entry.licence and asdict(entry.licence),
                "has_time": entry.has_time,
                "users": entry.expected and entry.expected.users,
                "items": entry.expected and entry.expected.items,
                "rows": entry.expected and entry.expected.rows,
                "layouts": [list(form.files) for form in entry.forms],
                "archive": entry.archive is not None,
            }
            for entry in known_datasets().values()
        ],
    }


def options_of(method: Any) -> list[dict[str, Any]]:
    """A method's options with their defaults."""
    fields = type(method.config).model_fields
    values = method.config.model_dump(mode="json")
    return [{"option": key, "default": values[key], "about": fields[key].description} for key in fields]


def method_names(incomplete: str) -> list[str]:
    """Names of methods that begin so."""
    return _beginning("methods", incomplete)


def plugin_names(incomplete: str) -> list[str]:
    """Names of plug-ins that begin so."""
    return _beginning("plugins", incomplete)


def trained_names(incomplete: str) -> list[str]:
    """Names of methods and centralized baselines that begin so."""
    return [*method_names(incomplete), *_beginning("baselines", incomplete)]


def dataset_names(incomplete: str) -> list[str]:
    """Names of data sets that begin so. Your own files are not offered."""
    return _beginning("datasets", incomplete)


def preset_names(incomplete: str) -> list[str]:
    """Names of presets that begin so."""
    return _beginning("presets", incomplete)


def _beginning(kind: str, incomplete: str) -> list[str]:
    return [entry["name"] for entry in catalogue()[kind] if entry["name"].startswith(incomplete)]
