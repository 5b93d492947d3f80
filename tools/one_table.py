"""Measure a service with one table: fit, update by one day of rows, lists for everybody, answers over HTTP.

    python tools/one_table.py                     50,000 users, 5,000 items, 1.4 million plays, made up
    python tools/one_table.py --users 2000 --items 500 --interactions 40000 --seconds 2

Prints the seconds and memory of each step, what an update saves, how far its weights are from those of a fit
to everything, and the requests per second and latencies that wrk sees. Each step is a command in a process of
its own, as a night would run it. `wrk` must be installed.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx
import polars as pl
import psutil
import torch

from solera.data.synthetic import World
from solera.estimators import load_model

DAY = 86_400
SOLERA = [sys.executable, "-m", "solera"]
MIB = 2**20


class Took(NamedTuple):
    """What a command took."""

    seconds: float
    cpu: float
    peak: int  # bytes


def main() -> None:
    """Measure all steps in a folder that is removed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, size in (("users", 50_000), ("items", 5_000), ("interactions", 1_400_000)):
        parser.add_argument(f"--{name}", type=int, default=size)
    parser.add_argument("--seconds", type=int, default=20, help="how long wrk asks")
    parser.add_argument("--workers", type=int, default=2, help="processes that answer")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for line in measured(Path(folder), World(asked.users, asked.items, asked.interactions), asked):
            print(line, flush=True)


def measured(folder: Path, world: World, asked: argparse.Namespace) -> Iterator[str]:
    """The lines of the table."""
    before, today = halves(folder, world)
    yield "| step | wall, s | CPU, s | peak memory, MiB |"
    yield "|---|---|---|---|"
    exact = ["-o", "precision=double"]
    models, again = folder / "models", folder / "again"
    fitted = run("fit", folder / "before.parquet", "--out", models, *exact)
    yield row(f"`solera fit`, {before:,} plays", fitted)
    updated = run("fit", folder / "today.parquet", "--update", "--out", models)
    yield row(f"`solera fit --update`, a day of {today:,} plays", updated)
    refitted = run("fit", folder / "plays.parquet", "--out", again, *exact)
    yield row("`solera fit`, all plays", refitted)
    lists = folder / "recommendations.parquet"
    batch = run("recommend", models / "current", "--all", "-k", 20, "-o", lists)
    served = pl.scan_parquet(lists).select("user").collect()["user"].n_unique()
    yield row(f"`solera recommend --all -k 20`, {served:,} users", batch)
    first, second = (weights(each / "current") for each in (models, again))
    yield ""
    difference = float((first - second).abs().max())
    yield f"Largest difference between weights of the update and of the fit: {difference:.1e}."
    model = load_model(models / "current")
    here = fit_and_update(folder)
    yield f"Inside one process, the update takes {here[1]:.1f} CPU s, and the fit {here[0]:.1f}."
    with serving(models / "current", asked.workers) as (address, process):
        told = wrk(folder, address, model.data.user_map.ids.tolist(), asked.seconds)
        family = [process, *process.children(recursive=True)]
        memory = sum(each.memory_info().rss for each in family) / MIB
    yield f"`solera serve --workers {asked.workers}`: {told}, {memory:,.0f} MiB in {len(family)} processes."


def halves(folder: Path, world: World) -> tuple[int, int]:
    """Write all plays, the latest ones, as many as an average day has, and those before."""
    rows = pl.concat(world.batches()).sort("time", maintain_order=True)
    days = (rows["time"][-1] - rows["time"][0]) / DAY
    today = max(1, int(len(rows) / days))
    parts = {"plays": rows, "before": rows[:-today], "today": rows[-today:]}
    for name, part in parts.items():
        part.write_parquet(folder / f"{name}.parquet")
    return len(parts["before"]), today


def run(*arguments: object) -> Took:
    """Run a command of Solera and measure it."""
    start = time.perf_counter()
    process = subprocess.Popen([*SOLERA, *map(str, arguments)], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{arguments} failed")
    peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return Took(time.perf_counter() - start, usage.ru_utime + usage.ru_stime, peak)


def row(step: str, took: Took) -> str:
    """A line of the table."""
    return f"| {step} | {took.seconds:.1f} | {took.cpu:.1f} | {took.peak / MIB:,.0f} |"


def weights(folder: Path) -> torch.Tensor:
    """The weights of a saved model, its items in the order of their ids."""
    model = load_model(folder)
    matrix = model._federation.state.shared["weights"]  # type: ignore[attr-defined]
    order = torch.tensor(sorted(range(model.data.n_items), key=model.data.item_map.id))
    return matrix[order][:, order]


def fit_and_update(folder: Path) -> tuple[float, float]:
    """CPU seconds of a fit to all plays, and of an update by one day, without reading and writing files."""
    import solera

    before, today = (
        solera.load(folder / f"{name}.parquet", min_interactions=1) for name in ("before", "today")
    )
    whole = solera.load(folder / "plays.parquet", min_interactions=1)
    start = time.process_time()
    solera.FedEASE().fit(whole)
    middle = time.process_time()
    model = solera.FedEASE().fit(before)
    begin = time.process_time()
    model.update(today)
    return middle - start, time.process_time() - begin


@contextmanager
def serving(model: Path, workers: int) -> Iterator[tuple[str, psutil.Process]]:
    """The address of a model that is served, and the process that does it."""
    command = [*SOLERA, "serve", str(model), "--port", "0", "--workers", str(workers)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"}
    ) as process:
        assert process.stdout
        try:
            yield process.stdout.readline().split()[-1].removesuffix("/docs"), psutil.Process(process.pid)
        finally:
            process.terminate()
            process.wait(30)


def wrk(folder: Path, address: str, users: list[str], seconds: int) -> str:
    """What wrk says of requests for ten items each, of users in turn."""
    some = ", ".join(f'"{user}"' for user in users[:: max(1, len(users) // 1000)])
    script = folder / "users.lua"
    script.write_text(
        f"local users = {{{some}}}\nlocal at = 0\nrequest = function()\n  at = at % #users + 1\n"
        '  return wrk.format("GET", "/recommendations?k=10&user=" .. users[at])\nend\n'
    )
    httpx.get(f"{address}/recommendations", params={"user": users[0]}, timeout=300).raise_for_status()
    options = f"-t2 -c16 -d{seconds}s --latency"
    command = ["wrk", *options.split(), "--timeout", "30s", "-s", str(script), address]
    subprocess.run(command, check=True, capture_output=True)  # all workers are warm
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    if wrong := re.search(r"(Non-2xx.*|Socket errors.*)", told):
        sys.exit(wrong[1])
    found = {name: re.search(pattern, told) for name, pattern in _FIGURES.items()}
    shown = ", ".join(f"{name} {each[1]}" for name, each in found.items() if each)
    return f"{shown} (`wrk {options}`)"


_FIGURES = {"requests/s": r"Requests/sec:\s+(\S+)", "p50": r"50%\s+(\S+)", "p99": r"99%\s+(\S+)"}

if __name__ == "__main__":
    main()
