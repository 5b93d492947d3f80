"""Presets by name: published rows, the best settings from equal tuning, and the rows of papers' tables."""

from __future__ import annotations

import tomllib
from pathlib import Path

from pydantic import ValidationError

from solera.core.errors import ConfigError, closest
from solera.runs.paper_rows import row_preset, row_presets
from solera.runs.preset import Preset, presets

__all__ = ["Preset", "preset", "presets"]


def preset(name: str) -> Preset:
    """The preset with this name, of a row of a paper, or in a .toml file.

    A row is named as in paper:fedmf@pfedrec/ml-100k: FedMF as PFedRec's paper compares with it.
    """
    if name.endswith(".toml"):
        return _in_file(Path(name))
    found = presets().get(name) or (row_preset(name) if "@" in name else None)
    if found is None:
        hint = (
            closest(name, row_presets())
            if "@" in name
            else f"{closest(name, list(presets()))}; solera presets lists them"
        )
        raise ConfigError(f"unknown preset {name!r}", hint)
    return found


def _in_file(path: Path) -> Preset:
    hint = "give a file like the best.toml of `solera sweep`"
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
        if len(found) != 1:
            raise ConfigError(f"{path} contains {len(found)} presets instead of one", hint)
        ((name, entry),) = found.items()
        return Preset(name=name, **entry)
    except OSError as error:
        raise ConfigError(f"the preset {path} cannot be read: {error.strerror}", hint) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, TypeError) as error:
        raise ConfigError(f"{path} is not a preset: {error}", hint) from None
    except ValidationError as error:
        wrong = error.errors()[0]
        where = ".".join(map(str, wrong["loc"]))
        raise ConfigError(f"{path} is not a preset: {where}: {wrong['msg']}", hint) from None
