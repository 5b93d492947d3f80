"""The synthetic data of the points, made once, with the score of popularity on them."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from solera.core.files import replacing_file, write_atomically
from solera.core.types import Ints
from solera.data import synthetic
from solera.data.datasets import load
from solera.data.interactions import Split, history
from solera.data.ragged import Ragged
from solera.evaluate import metrics, split
from solera_research.scale.points import INTERACTIONS, SEED, short
from solera_research.scale.records import World


def prepare(users: int, items: int, folder: Path) -> tuple[Path, World]:
    """The file with the interactions and its description. Both are made if they are not there."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"world-u{short(users)}-i{short(items)}.parquet"
    about = file.with_suffix(".json")
    if not (file.exists() and about.exists()):
        with multiprocessing.get_context("spawn").Pool(1) as pool:  # whose memory is free again afterwards
            pool.apply(_make, (users, items, file, about))
    return file, World.model_validate_json(about.read_bytes())


def _make(users: int, items: int, file: Path, about: Path) -> None:
    with replacing_file(file) as partial:
        named = partial.with_suffix(file.suffix)
        try:
            synthetic.World(users, items, INTERACTIONS * users, SEED).write(named)
            named.replace(partial)
        finally:
            named.unlink(missing_ok=True)
    data = load(str(file))  # also converts it, so that no point pays for that
    parts = split(data, "strict")
    world = World(
        users=data.n_users,
        items=data.n_items,
        interactions=len(data),
        training_items=float(parts.train.lengths.mean()),
        popularity=popularity(parts),
    )
    write_atomically(about, world.model_dump_json(indent=1) + "\n")


def popularity(parts: Split) -> float:
    """NDCG@10 of the popularity baseline under `strict`, without a score for every user and item.

    The place of a test item among all items is looked up in their sorted counts. Then the user's own items,
    which are not candidates, are taken away from it.
    """
    counts = np.bincount(parts.train.sorted_unique().values, minlength=parts.data.n_items)
    ordered = np.sort(counts)
    users = np.flatnonzero(parts.test.lengths)
    targets = parts.test.take(users)  # one item each
    hidden = history(parts, "test", users).concat(targets).sorted_unique()
    own, others = counts[targets.values], counts[hidden.values]
    limit = own[hidden.rows]
    better = len(ordered) - np.searchsorted(ordered, own, "right") - _per_row(hidden, others > limit)
    as_good = len(ordered) - np.searchsorted(ordered, own, "left") - _per_row(hidden, others >= limit)
    ranks = 1.0 + (better + as_good) / 2.0
    return float(metrics.per_user(ranks, targets.lengths)["ndcg@10"].mean())


def _per_row(rows: Ragged, marked: NDArray[np.bool_]) -> Ints:
    return np.bincount(rows.rows[marked], minlength=len(rows))
