"""solera blend: two finished runs as one model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from solera.cli.options import DataDir
from solera.cli.output import Json, out, print_json, print_result


def blend(
    first: Annotated[
        str,
        typer.Argument(help="The folder of a finished run, or the preset of a baseline, which is fitted."),
    ],
    second: Annotated[str, typer.Argument(help="Another one.")],
    out_dir: Annotated[Path | None, typer.Option("--out", help="Folder for the blend.")] = None,
    data_dir: DataDir = None,
    json: Json = False,
) -> None:
    """Blend two models: add up their scores, with the weight that is best on validation.

    Both have to score users by their histories, as fedease, fedslist, fedhist and fedsasrec do, and of the
    centralized baselines ease, slist, ials, sasrec, esasrec and hstu.

    Example: solera blend runs/fedslist-beauty-strict-s0 runs/fedsasrec-beauty-strict-s0 --out runs/both

    Example: solera blend central:slist/beauty central:sasrec/beauty
    """
    from solera.runs.blend import blend_runs

    run = blend_runs(first, second, out=out_dir, data_dir=data_dir)
    if json:
        print_json(run.result.document())
        return
    print_result(run.result)
    out.print(f"weight of {second}: {run.result.options['weight']}")
