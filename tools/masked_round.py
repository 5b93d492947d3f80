"""The time of a masked round in two versions of Solera, measured in turns in one run.

    git worktree add /tmp/v0.1 v0.1
    python tools/masked_round.py /tmp/v0.1 --nodes 20 --rounds 15
    python tools/masked_round.py /tmp/v0.1 --flower --data ml-100k --nodes 5

The first has all nodes in one process, each with a device folder of its own, and the server of the version
itself; nothing is sent. Each version runs in a process that stays, and one round of the one follows one round
of the other, so that whatever else the machine does falls on both. With --flower, `solera bench flower` of
both versions does the same over real processes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).resolve().parents[1]


class Version:
    """One checkout's federation, in a process of its own."""

    def __init__(self, checkout: Path, nodes: int, items: int, rounds: int) -> None:
        command = [sys.executable, __file__, "--drive", *map(str, (nodes, items, rounds))]
        self._process = subprocess.Popen(
            command, env=environment(checkout), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def round(self) -> dict[str, float]:
        """Have it run one round."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("a version has ended before its time; what it said is above")
        found: dict[str, float] = json.loads(line)
        return found

    def end(self) -> None:
        """Let it end."""
        self._process.communicate()


def environment(checkout: Path) -> dict[str, str]:
    """In which a checkout's own code, and what its tests share, is imported."""
    paths = (checkout / "src", checkout / "tests", checkout / "tests" / "deploy")
    alone = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    return {**os.environ, **alone, "PYTHONPATH": os.pathsep.join(map(str, paths))}


def drive(nodes: int, items: int, rounds: int) -> None:
    """One version: a round for every line that comes, and its time in seconds."""
    with tempfile.TemporaryDirectory(prefix="solera-masked-") as name:
        federation = make(Path(name), nodes, items, rounds)
        for number, _ in enumerate(sys.stdin):
            wall, cpu = time.perf_counter(), time.process_time()
            entry = federation.round()
            found = {"seconds": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
            if entry is None or entry["round"] != number + 1:
                raise SystemExit(f"round {number + 1} has not counted: {entry}")
            print(json.dumps(found), flush=True)
            federation.sent.clear()


def make(root: Path, nodes: int, items: int, rounds: int) -> Any:
    """A federation of FedMF with one user on every node, by the helper that both versions' tests have."""
    import numpy as np

    from federation import Local
    from solera.deploy.common.authority import make_keys as make_node_keys
    from solera.device.bundle import Item
    from solera.device.keys import make_keys

    make_keys(root / "publisher")
    make_node_keys(root / "keys", nodes)
    draw = np.random.default_rng(3)
    return Local(
        root,
        key=root / "publisher.key",
        catalogue=[Item(str(item), f"Film {item}", None) for item in range(items)],
        histories=[draw.choice(items, min(60, items // 2), replace=False).tolist() for _ in range(nodes)],
        method="fedmf",
        options={},
        precision="single",
        sizes=(1,) * nodes,
        settings={"secure_aggregation": True, "over_selection": 1.0, "rounds": rounds},
        node_keys=root / "keys",
    )


def in_process(before: Path, nodes: int, items: int, rounds: int) -> dict[str, list[float]]:
    """Seconds of every round but the first, by version; the order of the two changes from round to round."""
    versions = {
        name: Version(path, nodes, items, rounds + 1) for name, path in (("before", before), ("now", HERE))
    }
    found: dict[str, list[float]] = {f"{name} {what}": [] for name in versions for what in ("seconds", "cpu")}
    for number in range(rounds + 1):
        for name in sorted(versions, reverse=bool(number % 2)):
            for what, seconds in versions[name].round().items():
                found[f"{name} {what}"] += [seconds] if number else []
    for version in versions.values():
        version.end()
    return found


def over_flower(before: Path, nodes: int, data: str, times: int) -> dict[str, list[float]]:
    """The median of a few rounds over real processes, several times."""
    found: dict[str, list[float]] = {"before seconds": [], "now seconds": []}
    options = ["--data", data, "--nodes", str(nodes), "--rounds", "4", "--secure-aggregation", "--json"]
    for _ in range(times):
        for name, checkout in (("before", before), ("now", HERE)):
            done = subprocess.run(
                [sys.executable, "-m", "solera", "bench", "flower", *options],
                env=environment(checkout),
                stdout=subprocess.PIPE,
                check=True,
            )
            found[f"{name} seconds"].append(json.loads(done.stdout)["round"])
    return found


def summary(found: dict[str, list[float]]) -> dict[str, float]:
    """Medians, and the median of the ratios of rounds that were run one after the other."""
    shown = {name: median(values) for name, values in found.items()}
    for what in ("seconds", "cpu"):
        if f"now {what}" in found:
            pairs = zip(found[f"now {what}"], found[f"before {what}"], strict=True)
            shown[f"ratio {what}"] = median(now / before for now, before in pairs)
    return shown


def main() -> None:
    """Compare, or be one of those compared."""
    if sys.argv[1:2] == ["--drive"]:
        drive(*map(int, sys.argv[2:]))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("before", type=Path, help="a checkout of the version to compare with")
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--items", type=int, default=1682, help="of the catalogue, in one process")
    parser.add_argument("--rounds", type=int, default=15, help="of each; with --flower, repetitions")
    parser.add_argument("--flower", action="store_true", help="over real processes")
    parser.add_argument("--data", default="ml-100k", help="with --flower: a data set")
    parser.add_argument("--json", action="store_true", help="print one document")
    given = parser.parse_args()
    before = given.before.resolve()
    if given.flower:
        found = over_flower(before, given.nodes, given.data, given.rounds)
    else:
        found = in_process(before, given.nodes, given.items, given.rounds)
    shown = summary(found)
    if given.json:
        print(json.dumps({"nodes": given.nodes, "rounds": found, "medians": shown}, indent=2))
        return
    for name, value in shown.items():
        print(f"{name:16} {value:.3f}")


if __name__ == "__main__":
    main()
