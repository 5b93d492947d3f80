"""Small sets of ratings, made up."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import polars as pl

import solera
from solera.data.interactions import Interactions


def write_ratings(path: Path, *, users: int, items: int, each: int, seed: int) -> Path:
    """Users u0, u1, … with so many items each, in the order of their times."""
    draw = random.Random(seed)
    rows = ["user,item,time"]
    for user in range(users):
        rows += [f"u{user},i{item},{len(rows) + n}" for n, item in enumerate(draw.sample(range(items), each))]
    path.write_text("\n".join(rows) + "\n")
    return path


def random_histories(*, users: int, items: int) -> Interactions:
    """Users u0, u1, … with 6 to 13 items each, in the order of their times."""
    draw = np.random.default_rng(0)
    rows = [
        (f"u{user}", f"i{item}", 1, time)
        for user in range(users)
        for time, item in enumerate(draw.permutation(items)[: draw.integers(6, 14)])
    ]
    return solera.load(pl.DataFrame(rows, schema=["user", "item", "rating", "time"], orient="row"))
