"""solera methods: what there is to train, and with what settings."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from solera.cli.catalogue import catalogue, method_names, options_of
from solera.cli.options import Plugins
from solera.cli.output import Answer, Table, answers

_CHOICES = ("scorer", "view", "loss", "update", "aggregate")


@answers
def methods(
    name: Annotated[
        str | None, typer.Argument(help="Show this method's options.", autocompletion=method_names)
    ] = None,
    plugin: Plugins = None,
    presets: Annotated[
        bool, typer.Option("--presets", help="List settings by name, for --preset, instead.")
    ] = False,
) -> Answer:
    """List methods, their five choices, plug-ins and baselines; the options of one method; or the presets.

    Presets are settings of published results, and the best settings found by equal tuning.

    Example: solera methods

    Example: solera methods fedncf --plugin elastic-merge

    Example: solera methods --presets
    """
    if presets:
        return _presets()
    if name is not None:
        known = {} if plugin else {entry["name"]: entry for entry in catalogue()["methods"]}
        shown = known.get(name) or _built(name, plugin or [])
        title = f"{name} ({shown['paper']}): {' × '.join(shown[key] for key in _CHOICES)}"
        options = ((o["option"], str(o["default"]), o["about"]) for o in shown["options"])
        return Answer(shown, [title, Table("options", ("-o", "default", "about"), options)])
    listed = [{key: entry[key] for key in ("name", *_CHOICES, "paper")} for entry in catalogue()["methods"]]
    columns = {key: key for key in ("name", *_CHOICES)}
    plugins = {"name": "--plugin", "about": "what it does"}
    return Answer(
        listed,
        [
            Table.of("Methods and their five choices", listed, columns),
            Table.of("Plug-ins, for any method they fit", catalogue()["plugins"], plugins),
            f"Centralized baselines: {', '.join(entry['name'] for entry in catalogue()['baselines'])}",
        ],
    )


def _built(name: str, plugins: list[str]) -> dict[str, Any]:
    from solera.methods import find

    built = find(name, {}, plugins)
    return {"name": built.name, **built.choices, "paper": built.paper, "options": options_of(built)}


def _presets() -> Answer:
    known = catalogue()["presets"]
    published = [
        (entry["name"], published_figures(entry["published"]), entry["source"])
        for entry in known
        if entry["published"]
    ]
    tuned: dict[str, list[str]] = {}
    for entry in known:
        if not entry["published"]:
            tuned.setdefault(entry["dataset"], []).append(entry["full_method"])
    return Answer(
        [{key: value for key, value in entry.items() if key != "full_method"} for entry in known],
        [
            Table("Published rows", ("--preset", "HR@10 / NDCG@10", "source"), published),
            Table(
                "The best that equal tuning found: strict:METHOD/DATA",
                ("DATA", "METHOD"),
                ((dataset, ", ".join(names)) for dataset, names in tuned.items()),
            ),
        ],
    )


def published_figures(figures: dict[str, float]) -> str:
    """HR@10 / NDCG@10 of a published row; empty if there is none."""
    return f"{figures['hr']:.3f} / {figures['ndcg']:.3f}" if figures else ""
