"""A small file of ratings, made up."""

from __future__ import annotations

import random
from pathlib import Path


def write_ratings(path: Path, *, users: int, items: int, each: int, seed: int) -> Path:
    """Users u0, u1, … with so many items each, in the order of their times."""
    draw = random.Random(seed)
    rows = ["user,item,time"]
    for user in range(users):
        rows += [f"u{user},i{item},{len(rows) + n}" for n, item in enumerate(draw.sample(range(items), each))]
    path.write_text("\n".join(rows) + "\n")
    return path
