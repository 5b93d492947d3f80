"""solera methods and presets: what there is to train."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from solera.cli import completion
from solera.cli.catalogue import catalogue, options_of
from solera.cli.options import Plugins
from solera.cli.output import Json, out, print_json, table

_CHOICES = ("scorer", "view", "loss", "update", "aggregate")


def methods(
    name: Annotated[
        str | None, typer.Argument(help="Show this method's options.", autocompletion=completion.methods)
    ] = None,
    plugin: Plugins = None,
    json: Json = False,
) -> None:
    """List the methods and their five choices, or show the options of one method.

    Example: solera methods fedncf --plugin elastic-merge
    """
    if name is not None:
        known = {} if plugin else {entry["name"]: entry for entry in catalogue()["methods"]}
        shown = known.get(name) or _built(name, plugin or [])
        if json:
            print_json(shown)
            return
        out.print(f"[bold]{name}[/] ({shown['paper']}): {' × '.join(shown[key] for key in _CHOICES)}")
        table(
            "options",
            ("-o", "default", "about"),
            ((o["option"], str(o["default"]), o["about"]) for o in shown["options"]),
        )
        return
    listed = catalogue()["methods"]
    if json:
        print_json([{key: entry[key] for key in ("name", *_CHOICES, "paper")} for entry in listed])
        return
    columns = ("name", *_CHOICES)
    table("Methods and their five choices", columns, ([entry[key] for key in columns] for entry in listed))
    plugins = ((entry["name"], entry["about"]) for entry in catalogue()["plugins"])
    table("Plug-ins, for any method they fit", ("--plugin", "what it does"), plugins)


def _built(name: str, plugins: list[str]) -> dict[str, Any]:
    from solera.methods import find

    built = find(name, {}, plugins)
    return {"name": built.name, **built.choices, "paper": built.paper, "options": options_of(built)}


def presets(json: Json = False) -> None:
    """List presets: settings of published results, and the best settings found by equal tuning.

    Example: solera presets

    Example: solera train --preset paper:fedrap/ml-100k

    Example: solera baseline --preset strict:ease/ml-100k
    """
    known = catalogue()["presets"]
    if json:
        print_json([{key: value for key, value in entry.items() if key != "full_method"} for entry in known])
        return
    table(
        "Published rows",
        ("--preset", "HR@10 / NDCG@10", "source"),
        (
            (entry["name"], published_figures(entry["published"]), entry["source"])
            for entry in known
            if entry["published"]
        ),
    )
    tuned: dict[str, list[str]] = {}
    for entry in known:
        if not entry["published"]:
            tuned.setdefault(entry["dataset"], []).append(entry["full_method"])
    table(
        "The best that equal tuning found: strict:METHOD/DATA",
        ("DATA", "METHOD"),
        ((dataset, ", ".join(methods)) for dataset, methods in tuned.items()),
    )


def published_figures(figures: dict[str, float]) -> str:
    """HR@10 / NDCG@10 of a published row; empty if there is none."""
    return f"{figures['hr']:.3f} / {figures['ndcg']:.3f}" if figures else ""
