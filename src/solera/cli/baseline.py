"""solera baseline: a centralized recommender to compare with."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

import typer

from solera.cli.options import DataDir, OptionalData, Options, PresetName, parse_numbers, parse_pairs
from solera.cli.output import Json, print_json, print_result
from solera.cli.progress import epoch_progress
from solera.cli.settings import takes_settings

USUAL_CUTOFFS = "5,10,20,50"
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


@takes_settings("protocol", "cutoffs", "seed", "min_interactions", "columns")
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
    option: Options = None,
    *,
    settings: dict[str, Any],
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Train a centralized baseline under the same protocol, to compare federated methods with.

    Example: solera baseline --preset strict:ease/ml-100k

    Example: solera baseline ease --data ml-100k -o reg=200

    Example: solera baseline mf --data ml-100k -o epochs=50
    """
    from solera.data.datasets import load
    from solera.runs.baseline import run_baseline
    from solera.runs.presets import baseline_settings

    given = parse_pairs(option or [], "-o reg=200")
    cutoffs = parse_numbers(settings.pop("cutoffs", USUAL_CUTOFFS), "--cutoffs")
    config = baseline_settings(name, data, preset=preset, options=given, **settings)
    interactions = load(
        config.dataset, data_dir=data_dir, min_interactions=config.min_interactions, columns=config.columns
    )
    with epoch_progress(f"{config.baseline} on {interactions.name}") as on_epoch:
        result = run_baseline(
            config.baseline,
            interactions,
            protocol=config.protocol,
            seed=config.seed,
            options=config.options,
            cutoffs=cutoffs,
            on_epoch=on_epoch,
        ).result
    if json:
        print_json(result.document())
    else:
        print_result(result)
