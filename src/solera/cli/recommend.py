"""solera recommend: items from a finished run's model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from solera.cli.options import DataDir
from solera.cli.output import Answer, Line, Table, answers
from solera.cli.progress import open_progress

if TYPE_CHECKING:
    import polars as pl

    from solera.estimators import Model
    from solera.runs import Recommendation, Run


@answers
def recommend(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run, or of a model.")],
    user: Annotated[
        list[str] | None, typer.Option(help="A user's id, as in the data set; repeatable.")
    ] = None,
    all_users: Annotated[
        bool, typer.Option("--all", help="Recommend for every user of the data set.")
    ] = False,
    history: Annotated[
        str | None,
        typer.Option(
            help="Recommend for a user who was not in training: ids of their items, oldest first, e.g. 1,50."
        ),
    ] = None,
    like: Annotated[
        str | None, typer.Option(metavar="ITEM", help="List the items most similar to this one instead.")
    ] = None,
    k: Annotated[int, typer.Option("-k", help="How many items.", min=1)] = 10,
    only: Annotated[list[str] | None, typer.Option(help="Recommend only this item; repeatable.")] = None,
    without: Annotated[list[str] | None, typer.Option(help="Never recommend this item; repeatable.")] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Write to this .parquet or .csv file instead.")
    ] = None,
    data_dir: DataDir = None,
) -> Answer:
    """Recommend items that a user has not interacted with yet, or list items like one.

    Items are alike by the cosine of their vectors, or by the weights of a closed-form method.

    Example: solera recommend runs/fedmf-ml-100k-strict-s0 --user 196 -k 10

    Example: solera recommend runs/fedmf-ml-100k-strict-s0 --all -o everybody.parquet

    Example: solera recommend runs/fedease-ml-100k-strict-s0 --history 50,172,181

    Example: solera recommend runs/fedease-ml-100k-strict-s0 --like 50 -k 5
    """
    from solera.core.errors import ConfigError

    if (user is not None) + all_users + (history is not None) + (like is not None) != 1:
        raise ConfigError(
            "give exactly one of --user, --all, --history and --like",
            "for example --user 196, or --history 50,172",
        )
    if like is not None and (only or without or output):
        raise ConfigError("--like cannot be combined with --only, --without or --output", "omit them")
    if all_users and output is None:
        raise ConfigError(
            "--all needs an output file", "give -o recommendations.parquet or -o recommendations.csv"
        )
    if output and history is not None:
        raise ConfigError(
            "--history cannot be combined with --output", "omit --output; --json prints one document"
        )
    model = opened(run, data_dir)
    if like is not None:
        found = model.similar(like, k)
        title = f"Like {model.data.title(model.data.item_map.index(like, 'item')) or like}"
        return Answer(
            {"run": str(run), "item": like, "items": _entries(found)}, [_table(title, found, model)]
        )
    hidden = without or []
    if output:
        with open_progress(f"recommendations to {output}", "user") as update:
            fallback = model.write_recommendations(
                output,
                user,
                k,
                only=only,
                without=hidden,
                on_users=lambda done, total: update(done, total, ""),
            )
        users = model.data.n_users if user is None else len(user)
        popular = f", {fallback} of them the most popular items" if fallback else ""
        return Answer(
            {"run": str(run), "users": users, "k": k, "fallback": fallback, "written": str(output)},
            [Line(f"recommendations for {users} users{popular}: {output}")],
        )
    if history is not None:
        items = [item.strip() for item in history.split(",") if item.strip()]
        found = model.recommend_for(items, k, only=only, without=hidden)
        return Answer(
            {"run": str(run), "history": items, "items": _entries(found)},
            [_table("For this history", found, model)],
        )
    listed = [(each, model.recommend(each, k, only=only, without=hidden)) for each in user or []]
    entries = [{"user": each, "items": _entries(found)} for each, found in listed]
    return Answer(
        {"run": str(run), **entries[0]} if len(entries) == 1 else {"run": str(run), "users": entries},
        [_table(f"For user {each}", found, model) for each, found in listed],
    )


def opened(path: Path, data_dir: Path | None) -> Run | Model:
    """A finished run, or a saved model."""
    from solera.core.errors import RunError
    from solera.estimators import load_model
    from solera.runs import Run

    if (path / "model.json").exists():
        return load_model(path)
    if not path.exists():
        raise RunError(f"{path} does not exist", "solera train makes a run, and solera fit a model")
    return Run.open(path, data_dir=data_dir)


def _entries(found: list[Recommendation] | pl.DataFrame) -> list[dict[str, Any]]:
    if isinstance(found, list):
        return [item._asdict() for item in found]
    return found.select("rank", "item", "title", "score").to_dicts()


def _table(title: str, found: list[Recommendation] | pl.DataFrame, of: Run | Model) -> Table:
    rows = [tuple(item.values()) for item in _entries(found)]
    leaky = hasattr(of, "result") and of.result.leaky
    return Table(title, ("#", "item", "title", "score"), rows, leaky)
