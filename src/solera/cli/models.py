"""solera fit, serve and export: one table, a new model every night."""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import typer

from solera.cli.options import DataDir, Options, Plugins, parse_columns, parse_pairs, takes_settings
from solera.cli.output import Answer, Line, answers, say
from solera.cli.progress import open_progress


@answers
@takes_settings("columns")
def fit(
    table: Annotated[str, typer.Argument(help="A .csv, .tsv or .parquet file, or the name of a data set.")],
    models: Annotated[Path, typer.Option("--out", help="The folder of models.")] = Path("models"),
    method: Annotated[str, typer.Option(help="A method or baseline.")] = "fedease",
    option: Options = None,
    plugin: Plugins = None,
    min_interactions: Annotated[
        int,
        typer.Option(help="Users with fewer are not trained.", min=1),
    ] = 5,
    update: Annotated[
        bool, typer.Option("--update", help="The table only has new rows: add them to the current model.")
    ] = False,
    keep: Annotated[int, typer.Option(help="How many models to keep, the current one included.", min=1)] = 7,
    *,
    settings: dict[str, Any],
    data_dir: DataDir = None,
) -> Answer:
    """Fit a model to all rows of a table and publish it as models/current. Nothing is held out.

    Every model has a folder of its own. The link `current` moves when the new one is complete, so the same
    command can run every night beside programs that read it. `solera compare` measures methods first.

    Example: solera fit plays.parquet --columns user=customer,item=track,time=played_at --out models

    Example: solera fit today.parquet --update --out models
    """
    from solera.estimators import CURRENT, estimator, load_model, loaded, publish
    from solera.runs.result import Progress
    from solera.runs.training import Callback

    class Shown(Callback):
        def after_round(self, done: Progress) -> None:
            tell(done.rounds_done, done.rounds, f"loss {done.entry.loss:.4f}")

        def on_clients(self, done: int, clients: int) -> None:
            tell(done, clients, "")

    start = perf_counter()
    named = parse_columns(settings.get("columns"))
    rows = loaded(table, named, data_dir)
    if update:
        model = load_model(models / CURRENT)
        model.update(rows)
    else:
        given: dict[str, Any] = dict(parse_pairs(option or [], "-o reg=500"))
        if plugin:
            given["plugins"] = tuple(plugin)
        made = estimator(method)(min_interactions=min_interactions, **given)
        with open_progress(f"{method} on {rows.name}", "step") as tell:
            model = made.fit(rows, callbacks=[Shown()])
    folder = publish(model, models, keep)
    data, seconds = model.data, perf_counter() - start
    fallback = int(model.recommender.has_fallback().sum())
    what = f"{len(data):,} interactions of {data.n_users:,} users with {data.n_items:,} items"
    popular = f"{fallback:,} users with too little history get the most popular items"
    return Answer(
        {
            "folder": str(folder),
            "method": model.method,
            "seconds": round(seconds, 1),
            "users": data.n_users,
            "items": data.n_items,
            "interactions": len(data),
            "fallback": fallback,
        },
        [
            Line(f"{model.method} fitted to {what} in {seconds:.0f} s: {folder}"),
            *([Line(popular)] if fallback else []),
            Line(f"next: solera recommend {models / CURRENT} --all -o recommendations.parquet", "dim"),
        ],
    )


@answers
def export(
    model: Annotated[Path, typer.Argument(help="The folder of a model, or of a finished run.")],
    onnx: Annotated[Path, typer.Option("--onnx", metavar="FILE", help="ONNX file to write.")],
    data_dir: DataDir = None,
) -> Answer:
    """Write a model of fedsasrec as an ONNX file, which other runtimes read without torch or Solera.

    Example: solera export models/current --onnx model.onnx
    """
    from solera.adapters.onnx import export as write
    from solera.cli.recommend import opened

    made = opened(model, data_dir)
    size = write(made, onnx).stat().st_size
    return Answer(
        {"model": str(model), "onnx": str(onnx), "bytes": size, "items": made.data.n_items},
        [Line(f"{made.data.n_items:,} items, {size / 2**20:.1f} MiB: {onnx}")],
    )


def serve(
    model: Annotated[Path, typer.Argument(help="A model's folder, or the link models/current.")] = Path(
        "models/current"
    ),
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.", min=0, max=65535)] = 8000,
    workers: Annotated[int, typer.Option(help="Processes; each holds the model.", min=1)] = 1,
) -> None:
    """Answer requests for recommendations and similar items over HTTP; the OpenAPI page is at /docs.

    When the link moves to a new model, that one answers from then on, without a restart. Anybody who reaches
    the port can ask: put a proxy with authentication in front of it.

    Example: solera serve models/current --port 8000
    """
    import socket
    import sys

    from solera.core.errors import ConfigError
    from solera.estimators import check_model

    try:
        from solera.serving import answer, answer_together
    except ModuleNotFoundError as error:
        raise ConfigError(f"serving needs {error.name}", "pip install 'solera[serve]'") from None
    check_model(model)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        reason = str(error.strerror).partition(" (")[0]
        raise ConfigError(
            f"cannot listen on {host}, port {port}: {reason}", "give another --port or --host"
        ) from None
    address, number = listening.getsockname()[:2]
    shown = f"[{address}]" if ":" in address else address
    say(f"serving {model}: http://{shown}:{number}/docs")  # requests wait until the model is read
    sys.stdout.flush()  # it may be a log
    if workers == 1:
        answer(model, listening)
    else:
        answer_together(model, listening, workers)
