"""solera leak: demonstrate how the papers' protocol leaks the held-out items."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from solera.cli.options import (
    Data,
    DataDir,
    Options,
    Threads,
    parse_columns,
    parse_pairs,
    takes_settings,
)
from solera.cli.output import Answer, Line, Table, answers
from solera.cli.progress import epoch_progress, step_progress

GROUPS = {
    "held_out": "the held-out item",
    "never_drawn": "unseen items never drawn",
    "drawn": "unseen items drawn",
    "train": "training items",
}


@answers
@takes_settings("seed", "min_interactions", "columns")
def leak(
    data: Data = "ml-100k",
    method: Annotated[str, typer.Option(help="Method, with plug-ins as in fedmf+plgc.")] = "fedrap",
    rounds: Annotated[int, typer.Option(help="Rounds under each protocol.", min=1)] = 15,
    every: Annotated[
        bool, typer.Option("--all", help="The counter on six data sets, beside every published figure.")
    ] = False,
    option: Options = None,
    picture: Annotated[Path, typer.Option(help="Name of the pictures, without .png and .svg.")] = Path(
        "leak"
    ),
    record: Annotated[Path | None, typer.Option(help="With --all: table to add the figures to.")] = None,
    threads: Threads = 0,
    data_dir: DataDir = None,
    *,
    settings: dict[str, Any],
) -> Answer:
    """Show that held-out items rise under the papers' protocol but not under strict. About a minute.

    Example: solera leak --data ml-100k

    Example: solera leak --all

    Example: solera leak --data ml-100k --method local --rounds 30
    """
    seed = settings.pop("seed", 0)
    if every:
        return _count(seed, _folder(picture) / picture.name, record, data_dir)
    from solera.data.datasets import load
    from solera.methods import build
    from solera_research.leak import Places, show_leak
    from solera_research.leak_plot import draw

    options = parse_pairs(option or [], "-o local_epochs=5")
    name, *plugins = method.split("+")
    build(name, options, plugins)
    folder = _folder(picture)
    settings["columns"] = parse_columns(settings.get("columns"))
    interactions = load(data, data_dir=data_dir, **settings)
    with step_progress(f"{method} on {interactions.name}", 2 * rounds) as update:

        def on_round(done: int, protocol: str, places: Places) -> None:
            update(done, f"{protocol}: held-out items at place {places.held_out:.0f} of 100")

        found = show_leak(
            method, interactions, options, rounds=rounds, seed=seed, threads=threads, on_round=on_round
        )
    found["pictures"] = [str(path) for path in draw(found, folder / picture.name)]
    title = f"{found['method']} on {found['dataset']} after {found['rounds']} rounds, seed {found['seed']}"
    return Answer(
        found,
        [
            Table(title, ("", "paper (LEAKY)", "strict"), _rows(found)),
            f"place: mean over {found['watched_users']:,} users, 100 is the top of a user's list, "
            "0 the bottom\n"
            "drawn: as a negative of that user, at least once so far\n"
            "HR@10: chance is 0.10 against 99 items\n"
            f"control: has learned nothing but what was drawn in {found['control_rounds']} rounds",
            Line(f"picture: {', '.join(found['pictures'])}"),
        ],
    )


def _count(seed: int, picture: Path, record: Path | None, data_dir: Path | None) -> Answer:
    """The counter on every data set that is there."""
    from solera.data.datasets import available, load
    from solera.runs.environment import check_committed
    from solera.study.records import Store
    from solera_research.leak import DATASETS, count_leak
    from solera_research.leak_plot import draw_counter
    from solera_research.records import Measured

    if record:
        check_committed(record)
    there = [name for name in DATASETS if available(name, data_dir) != "by hand"]
    rows = []
    for name in there:
        data = load(name, data_dir=data_dir)
        with epoch_progress(f"counter on {name}") as on_epoch:
            rows.append(count_leak(data, seed, on_epoch))
    if record:
        Store(record, Measured).add(*(Measured(key=row["dataset"], content=row) for row in rows))
    found: dict[str, Any] = {"rows": rows, "left_out": [name for name in DATASETS if name not in there]}
    found["pictures"] = [str(path) for path in draw_counter(rows, picture)]
    header = (
        "HR@10 / NDCG@10",
        "counter",
        "by formula",
        "ties by pop.",
        "popular",
        "best published",
        "strict",
    )
    said: list[Table | Line | str] = [
        Table(f"a counter of draws in 100 rounds, seed {seed}", header, map(_counted, rows)),
        "HR@10 / NDCG@10 against 99 items, under paper (LEAKY), but for strict; chance is 0.10 / 0.05\n"
        "counter: has learned nothing but what was drawn\n"
        "ties by pop.: equal counts ranked by popularity, thought of after the counter\n"
        "best published: the highest of either in the tables of five papers",
    ]
    if found["left_out"]:
        said.append(f"left out: {', '.join(found['left_out'])}; solera data show says where to get them")
    said.append(Line(f"picture: {', '.join(found['pictures'])}"))
    return Answer(found, said)


def _counted(row: dict[str, Any]) -> tuple[str, ...]:
    best = {key: max(each[key] for each in row["published"]) for key in ("hr@10", "ndcg@10")}
    shown = ("counter", "law", "counter, ties by popularity", "popularity")
    figures = [*(row[key] for key in shown), best, row["counter, strict"]]
    return (row["dataset"], *(f"{each['hr@10']:.3f} / {each['ndcg@10']:.3f}" for each in figures))


def _folder(picture: Path) -> Path:
    """Create the folder of the pictures before training starts."""
    from solera.core.errors import RunError

    try:
        picture.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(
            f"{picture.parent} cannot be created: {error.strerror}", "give another --picture"
        ) from None
    return picture.parent


def _rows(found: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    both = (found["paper"], found["strict"])
    for key, label in GROUPS.items():
        last = [each["places"][-1][key] for each in both]
        yield (f"place of {label}", *("–" if value is None else f"{value:.1f}" for value in last))
    for key, who in (("hr@10", ""), ("control", "control: ")):
        for kind, ranking in (("sampled99", "99 items"), ("full", "full ranking")):
            yield (f"{who}HR@10, {ranking}", *(f"{each[key][kind]:.3f}" for each in both))
