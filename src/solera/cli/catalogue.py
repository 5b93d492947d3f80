"""What there is to choose from, without importing torch: a file made by tools/docs/make_catalogue.py.

The shell completes names from it; `solera --install-completion` turns that on.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import solera
from solera.core import extensions

FILE = Path(solera.__file__).with_name("catalogue.json")


def catalogue() -> dict[str, list[dict[str, Any]]]:
    """Methods with their choices and options, plug-ins, presets and data sets, as the package has them.

    Where files or packages may add to it, everything is asked of the package itself.
    """
    added = extensions.own_files() or extensions.entries("methods") or extensions.entries("datasets")
    return made() if added else _read()


@cache
def _read() -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


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


def baseline_names(incomplete: str) -> list[str]:
    """Names of centralized baselines that begin so."""
    return _beginning("baselines", incomplete)


def dataset_names(incomplete: str) -> list[str]:
    """Names of data sets that begin so. Your own files are not offered."""
    return _beginning("datasets", incomplete)


def preset_names(incomplete: str) -> list[str]:
    """Names of presets that begin so."""
    return _beginning("presets", incomplete)


def _beginning(kind: str, incomplete: str) -> list[str]:
    return [entry["name"] for entry in catalogue()[kind] if entry["name"].startswith(incomplete)]
