"""What there is to choose from, without importing torch: a file made by tools/docs/make_catalogue.py."""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import solera

FILE = Path(solera.__file__).with_name("catalogue.json")


def catalogue() -> dict[str, list[dict[str, Any]]]:
    """Methods with their choices and options, plug-ins, presets and data sets, as the package has them.

    Where files with methods of one's own are named, everything is asked of the package itself.
    """
    if os.environ.get("SOLERA_METHODS"):
        return made()
    return _read()


@cache
def _read() -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def made() -> dict[str, list[dict[str, Any]]]:
    """The same, asked of the package."""
    from solera.data.registry import REGISTRY
    from solera.methods import PLUGINS, find, names
    from solera.runs.presets import presets

    return {
        "methods": [
            {"name": name, **find(name).choices, "paper": find(name).paper, "options": options_of(find(name))}
            for name in names()
        ],
        "plugins": [{"name": name, "about": plugin.about} for name, plugin in PLUGINS.items()],
        "presets": [
            entry.model_dump(mode="json") | {"full_method": entry.full_method} for entry in presets().values()
        ],
        "datasets": [
            {
                "name": entry.name,
                "folder": entry.home,
                "about": entry.about,
                "page": entry.page,
                "licence": {"terms": entry.licence.terms, "page": entry.licence.page},
                "has_time": entry.has_time,
                "users": entry.expected.users,
                "items": entry.expected.items,
                "rows": entry.expected.rows,
                "layouts": [list(form.files) for form in entry.forms],
                "archive": entry.archive is not None,
            }
            for entry in REGISTRY.values()
        ],
    }


def options_of(method: Any) -> list[dict[str, Any]]:
    """A method's options with their defaults."""
    fields = type(method.config).model_fields
    values = method.config.model_dump(mode="json")
    return [{"option": key, "default": values[key], "about": fields[key].description} for key in fields]
