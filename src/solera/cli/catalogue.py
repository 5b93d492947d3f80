"""What there is to choose from, without importing torch.

A wheel has it in a file, which hatch_build.py makes. Elsewhere the first command that asks writes it into the
user's cache, and the first one after a change of the source does so again.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import solera
from solera.core.files import write_atomically
from solera.data.fetch import cache_dir

PACKAGE = Path(solera.__file__).parent
SOURCES = ("core", "methods", "baselines", "data", "runs")  # what decides it
KINDS = (".py", ".toml")


def catalogue() -> dict[str, list[dict[str, Any]]]:
    """Methods with their choices and options, plug-ins, presets and data sets, as the package has them.

    Where files with methods of one's own are named, everything is asked of the package itself.
    """
    if os.environ.get("SOLERA_METHODS"):
        return made()
    return _read()


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
