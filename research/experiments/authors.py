# /// script
# requires-python = "==3.11.*"
# dependencies = [
#     "torch", "numpy==1.26.4", "pandas==2.0.3", "scipy<1.12", "scikit-learn", "cvxpy==1.4.2", "setuptools",
#     "polars",
# ]
# [tool.uv.sources]
# torch = { index = "cpu" }
# [[tool.uv.index]]
# name = "cpu"
# url = "https://download.pytorch.org/whl/cpu"
# explicit = true
# ///
"""Run the authors' public code on a CPU, as it is or with one line changed, and print its figures.

    git clone https://github.com/Zhangcx19/IJCAI-23-PFedRec code
    uv run research/experiments/authors.py pfedrec code code/data/ml-100k/ratings.dat --after --rounds 30

The line is the one in which training takes the items to draw negatives from: all outside everything that the
user ever rated, and after the change all outside the user's training items. The candidates of the evaluation
stay. Ratings are rows of user,item,rating,time in a folder with the data set's name. `--record TABLE.parquet`
adds settings, commit, line and the figures of every round to a table.
"""

from __future__ import annotations

import argparse
import copy
import functools
import hashlib
import json
import os
import random
import re
import runpy
import shutil
import sys
import tempfile
import time
import tomllib
import warnings
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from unittest.mock import MagicMock

import numpy as np
import pandas as pd
import polars
import torch
from sklearn.decomposition import PCA

EXPERIMENTS = Path(__file__).resolve().parents[2] / "experiments"
OLD = r"self\.negatives\[\[.+?\]\]"
NEW = (
    "self.train_ratings.groupby('userId')['itemId'].apply(lambda x: self.item_pool - set(x))"
    ".rename('negative_items').reset_index()"
)
AT_LEAST = {"amazon-video": 10}  # ratings of a user, as in the code of FedRAP and FedEM
NUMBERS = {"ml-100k": (943, 1682), "amazon-video": (8072, 11830)}  # of users and items, in PFedRec's code
ADAPTIONS = [
    "calls that move a tensor or a model to a GPU do nothing",
    "sets are turned into tuples before random.sample, as Python did itself up to 3.10",
    "imports for logs and plots (tensorboardX, requests, matplotlib, coloredlogs) are empty modules",
    "the seeds of random, numpy and torch are the record's, also where the code sets none",
    "a Laplace distribution of scale 0 is allowed, as in torch before 1.8",
    "Python 3.11, numpy 1.26.4, pandas 2.0.3, cvxpy 1.4.2, one thread",
]
FASTER = (
    "same batches and same use of the random generator without a Python loop over samples; plain copies; "
    "SGD and Adam with the same operations in the same order but without hooks; equal tables are "
    "decomposed once; --plain leaves this out, and the figures are equal"
)


class Code(NamedTuple):
    """What differs between the repositories."""

    repository: str
    sampler: str  # file
    digest: str  # beginning of its SHA-256
    chosen_by: str
    settings: str = ""  # of its README; all others are the code's defaults
    names: Mapping[str, str] = MappingProxyType({})  # of data sets
    folder: str = "datasets"
    rounds: str = "num_round"


CODES = {
    "pfedrec": Code(
        "Zhangcx19/IJCAI-23-PFedRec",
        "data.py",
        "9cefee012a1341b4",
        "validation",
        names={"amazon-video": "amazon"},
        folder="data",
    ),
    "gpfedrec": Code(
        "Zhangcx19/GPFedRec",
        "data.py",
        "9cefee012a1341b4",
        "validation",
        names={"ml-100k": "100k", "amazon-video": "amazon"},
        folder="data",
    ),
    "fedrap": Code(
        "mtics/FedRAP",
        "utils/data.py",
        "92c3de844be0dce6",
        "test",
        "--mu 1e-3 --l2_regularization 1e-6 --lr_network 1e-4 --lr_args 1e3 --data_file ratings.dat",
        names={"ml-100k": "movielens", "amazon-video": "amazon"},
        folder="../datasets",
    ),
    "fedca": Code("hongleizhang/FedCA", "utils/data.py", "87d6f819e83e948d", "test", rounds="global_round"),
    "fedem": Code(
        "jundongchen13/FedEM",
        "utils/data.py",
        "b59daaa7d0df2423",
        "test",
        names={"amazon-video": "amazon"},
        rounds="global_round",
    ),
}


def main() -> None:
    """Run one code once and write its record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("method", choices=CODES)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("ratings", type=Path)
    kind = parser.add_mutually_exclusive_group(required=True)
    kind.add_argument("--before", action="store_true", help="the code as it is")
    kind.add_argument("--after", action="store_true", help="with the line changed")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--every", type=int, default=1, help="of so many users, take the first")
    parser.add_argument("--plain", action="store_true", help="without what only saves time")
    parser.add_argument("--record", type=Path, help="table to add the record to")
    asked = parser.parse_args()
    asked.data = asked.ratings.resolve().parent.name
    table = asked.record and asked.record.resolve()  # the code runs in a folder of its own
    with tempfile.TemporaryDirectory() as parent:
        record = run(asked, CODES[asked.method], Path(parent) / "code")
    when = "after" if asked.after else "before"
    hr, ndcg = record["figures"].values()
    print(f"{asked.method} on {record['dataset']}, {when}, round {record['chosen_round']} of {asked.rounds}:")
    print(f"HR@10 {hr:.4f}, NDCG@10 {ndcg:.4f}")
    if table:
        folder = asked.data + (f"-{asked.every}" if asked.every > 1 else "")
        add(table, f"{folder}/{asked.method}--{when}--s{asked.seed}", record)


def add(table: Path, key: str, record: Mapping[str, Any]) -> None:
    """Put the record into the table, in the place of an earlier one."""
    row = polars.DataFrame({"name": key, "key": key, "content": json.dumps(record)})
    if table.exists():
        row = polars.concat([polars.read_parquet(table).filter(polars.col("name") != key), row])
    row.sort("name").write_parquet(table)


def run(asked: argparse.Namespace, code: Code, work: Path) -> dict[str, Any]:
    """The record of one run of a copy of the checkout in an empty folder."""
    shutil.copytree(asked.checkout, work, ignore=shutil.ignore_patterns(".git"))
    line = change(work, code, write=asked.after)
    name = code.names.get(asked.data, asked.data)
    sizes = place(asked.ratings, asked.data, work / code.folder / name / "ratings.dat", asked.every)
    if code.folder == "data":
        train = work / "train.py"
        for old, new in zip(NUMBERS[asked.data], sizes, strict=True):
            train.write_text(re.sub(rf"\b{old}\b", str(new), train.read_text("utf-8")), "utf-8")
    for folder in ("log", "logs", "sh_result", "results"):
        (work / folder).mkdir(exist_ok=True)
    adapt(asked.seed, plain=asked.plain)
    os.chdir(work)
    sys.path.insert(0, str(work))
    sys.argv = ["train.py", "--dataset", name, f"--{code.rounds}", str(asked.rounds), "--use_cuda", ""]
    sys.argv += [*code.settings.split(), *(["--seed", str(asked.seed)] if code.chosen_by == "test" else [])]
    start = time.process_time()
    left = runpy.run_path("train.py", run_name="__main__")
    curves = {
        "hr@10": left.get("hit_ratio_list", left.get("test_hrs")),
        "ndcg@10": left.get("ndcg_list", left.get("test_ndcgs")),
    }
    curves = {key: [round(value, 4) for value in curve] for key, curve in curves.items()}
    chosen = left["final_test_round"]
    listed = tomllib.loads((EXPERIMENTS / "repositories.toml").read_text("utf-8"))["repository"]
    return {
        "repository": f"https://github.com/{code.repository}",
        "commit": next(each["commit"] for each in listed if each["name"] == code.repository),
        "method": asked.method,
        "dataset": asked.data + (f", one user of {asked.every}" if asked.every > 1 else ""),
        "seed": asked.seed,
        "change": {"file": code.sampler, "line": line, "new": NEW} if asked.after else None,
        "adaptions": [*ADAPTIONS, *([] if asked.plain else [FASTER])],
        "settings": {
            "arguments": " ".join(sys.argv[1:]),
            "source": "the README's command, else the code's defaults",
        },
        "data": f"users with {AT_LEAST.get(asked.data, 1)} or more ratings, one of {asked.every}",
        "rounds": asked.rounds,
        "chosen_round": chosen + 1,
        "chosen_by": code.chosen_by,
        "figures": {key: curve[chosen] for key, curve in curves.items()},
        "last": {key: curve[-1] for key, curve in curves.items()},
        "by_round": curves,
        "users": left["config"]["num_users"],
        "items": left["config"]["num_items"],
        "candidates": "the held-out item and 99 random items the user never rated; "
        + ("other 99 for validation" if code.chosen_by == "validation" else "the same 99 for validation"),
        "cpu_seconds": round(time.process_time() - start, 1),
        "torch": torch.__version__,
        "date": datetime.now(UTC).date().isoformat(),
    }


def change(work: Path, code: Code, *, write: bool) -> int:
    """Number of the line, after it is changed if asked for."""
    text = (work / code.sampler).read_bytes()
    if not hashlib.sha256(text).hexdigest().startswith(code.digest):
        raise SystemExit(f"{code.sampler} is not that of the commit in experiments/repositories.toml")
    found = re.search(OLD.encode(), text)
    if write:
        (work / code.sampler).write_bytes(text[: found.start()] + NEW.encode() + text[found.end() :])
    return text[: found.start()].count(b"\n") + 1


def place(ratings: Path, data: str, goal: Path, every: int) -> tuple[int, int]:
    """Put the ratings where the code looks for them; the numbers of users and items."""
    gap = " " if data == "filmtrust" else ","
    rows = pd.read_csv(ratings, sep=gap, header=None)
    rows = rows[rows.groupby(0)[1].transform("size") >= AT_LEAST.get(data, 1)]
    rows = rows[rows[0].isin(rows[0].drop_duplicates().sort_values()[::every])]
    goal.parent.mkdir(parents=True, exist_ok=True)
    rows.to_csv(goal, sep=gap, header=False, index=False)
    return rows[0].nunique(), rows[1].nunique()


def adapt(seed: int, *, plain: bool) -> None:
    """Let the code run here without editing it."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for name in ("tensorboardX", "requests", "matplotlib", "matplotlib.pyplot", "coloredlogs"):
        sys.modules[name] = MagicMock()
    for kind in (torch.Tensor, torch.nn.Module):
        kind.cuda = lambda self, *_: self
    torch.cuda.set_device = lambda _: None
    torch.distributions.Distribution.set_default_validate_args(False)
    seed_once, sample = random.seed, random.sample
    random.seed = lambda _=None: seed_once(seed)
    random.seed()
    np.random.seed(seed)  # noqa: NPY002 - what the code uses
    torch.manual_seed(seed)
    last: list[Any] = [None, ()]

    def from_set(population: Any, k: int) -> list[Any]:
        if population is not last[0]:
            last[:] = population, tuple(population)
        return sample(last[1], k)

    random.sample = from_set
    if not plain:
        copy.deepcopy = copied
        torch.utils.data.DataLoader = Batches
        torch.optim.SGD, torch.optim.Adam = Sgd, Adam
        fit = PCA.fit_transform
        decomposed = functools.lru_cache(256)(
            lambda data, shape, kind, model: fit(model, np.frombuffer(data, kind).reshape(shape))
        )
        PCA.fit_transform = lambda self, table: (
            fit(self, table)
            if self.random_state is None
            else decomposed(table.tobytes(), table.shape, table.dtype, self)
        )


def copied(value: Any, memo: Any = None) -> Any:
    """A deep copy, without a walk through what holds no numbers."""
    if isinstance(value, torch.nn.Module):
        new = object.__new__(type(value))
        new.__dict__.update(
            value.__dict__, _parameters=copied(value._parameters), _modules=copied(value._modules)
        )
        return new
    if isinstance(value, torch.nn.Parameter):
        return torch.nn.Parameter(value.detach().clone())
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return type(value)((key, copied(each)) for key, each in value.items())
    return deepcopy(value, memo)


deepcopy = copy.deepcopy


class Sgd(torch.optim.SGD):
    """The same operations in the same order without hooks."""

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for group in self.param_groups:
            for table in group["params"]:
                table.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Move every table that has a gradient."""
        for group in self.param_groups:
            for table in group["params"]:
                if table.grad is not None:
                    decay = group["weight_decay"]
                    grad = table.grad.add(table, alpha=decay) if decay else table.grad
                    self.move(table, grad, group)

    step.hooked = True

    def move(self, table: torch.Tensor, grad: torch.Tensor, group: dict[str, Any]) -> None:
        """Move one table."""
        table.add_(grad, alpha=-group["lr"])


class Adam(torch.optim.Adam):
    """The same, with its two means."""

    zero_grad, step = Sgd.zero_grad, Sgd.step

    def move(self, table: torch.Tensor, grad: torch.Tensor, group: dict[str, Any]) -> None:
        """Move one table."""
        state = self.state[table]
        if not state:
            state.update(step=0, mean=torch.zeros_like(table), square=torch.zeros_like(table))
        state["step"] += 1
        first, second = group["betas"]
        state["mean"].lerp_(grad, 1 - first)
        state["square"].mul_(second).addcmul_(grad, grad, value=1 - second)
        scale = (1 - second ** state["step"]) ** 0.5
        below = (state["square"].sqrt() / scale).add_(group["eps"])
        table.addcdiv_(state["mean"], below, value=-group["lr"] / (1 - first ** state["step"]))


class Batches:
    """DataLoader's batches and its use of the generators."""

    def __init__(self, dataset: Any, batch_size: int, shuffle: bool) -> None:
        self.columns = (dataset.user_tensor, dataset.item_tensor, dataset.target_tensor)
        self.size = batch_size

    def __iter__(self) -> Iterator[list[torch.Tensor]]:
        torch.empty((), dtype=torch.int64).random_()  # for workers
        generator = torch.Generator().manual_seed(int(torch.empty((), dtype=torch.int64).random_()))
        for places in torch.randperm(len(self.columns[0]), generator=generator).split(self.size):
            yield [column[places] for column in self.columns]


if __name__ == "__main__":
    main()
