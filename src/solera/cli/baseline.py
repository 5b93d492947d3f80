"""solera baseline: a centralized recommender to compare with."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

import typer

from solera.cli.data import Columns, DataDir, MinInteractions, parse_columns, parse_numbers, parse_pairs
from solera.cli.output import Json, print_json, print_result
from solera.cli.progress import epoch_progress
from solera.cli.runs import USUAL_CUTOFFS, Cutoffs, OptionalData, Options, PresetName, ProtocolName, Seed

Baseline = Literal[
    "popularity",
    "counter",
    "ease",
    "slist",
    "ials",
    "mf",
    "ncf",
    "lightgcn",
    "centrap",
    "sasrec",
    "esasrec",
    "hstu",
]


def baseline(
    name: Annotated[
        Baseline | None,
        typer.Argument(
            metavar="[NAME]",
            help=", ".join(get_args(Baseline)),
        ),
    ] = None,
    data: OptionalData = None,
    preset: PresetName = None,
    protocol: ProtocolName = "strict",
    at: Cutoffs = USUAL_CUTOFFS,
    seed: Seed = 0,
    option: Options = None,
    data_dir: DataDir = None,
    min_interactions: MinInteractions = None,
    columns: Columns = None,
    json: Json = False,
) -> None:
    """Train a centralized baseline under the same protocol, to compare federated methods with.

    Example: solera baseline --preset strict:ease/ml-100k

    Example: solera baseline ease --data ml-100k -o reg=200

    Example: solera baseline mf --data ml-100k -o epochs=50
    """
    from solera.baselines import configure
    from solera.data.datasets import load
    from solera.runs.assembly import chosen_names
    from solera.runs.baseline import run_baseline
    from solera.runs.presets import preset as find_preset

    chosen = find_preset(preset) if preset else None
    settings = chosen_names(chosen, "baseline", name, data, [])
    which = settings["baseline"]
    options = (chosen.options if chosen else {}) | parse_pairs(option or [], "-o reg=200")
    configure(which, options)
    cutoffs = parse_numbers(at, "--at")
    interactions = load(
        settings["dataset"],
        data_dir=data_dir,
        min_interactions=min_interactions,
        columns=parse_columns(columns),
    )
    with epoch_progress(f"{which} on {interactions.name}") as on_epoch:
        result = run_baseline(
            which, interactions, protocol=protocol, seed=seed, options=options, at=cutoffs, on_epoch=on_epoch
        ).result
    if json:
        print_json(result.document())
    else:
        print_result(result)
