"""Tables of what there is to choose from: methods, data sets and presets."""

from __future__ import annotations

import polars as pl

from solera.baselines import BASELINES
from solera.data import datasets as known_data
from solera.methods import PLUGINS, find, names
from solera.runs.presets import presets as known_presets


def methods() -> pl.DataFrame:
    """A table of all methods, their parts and their papers, followed by the plug-ins for `plugins`."""
    rows = [{"name": name, **find(name).choices, "paper": find(name).paper} for name in names()]
    rows += [{"name": f"+{name}", "paper": plugin.about} for name, plugin in PLUGINS.items()]
    rows += [{"name": name, "paper": "centralized baseline"} for name in BASELINES]
    return pl.DataFrame(rows, infer_schema_length=None)


def datasets() -> pl.DataFrame:
    """A table of the data sets that can be loaded by name, and where each would be loaded from."""
    return pl.DataFrame([{"name": name, "from": known_data.available(name)} for name in known_data.names()])


def presets() -> pl.DataFrame:
    """A table of presets: published rows, and the best settings from equal tuning."""
    return pl.DataFrame(
        [
            {"name": each.name, "method": each.full_method, "dataset": each.dataset, "source": each.source}
            for each in known_presets().values()
        ]
    )
