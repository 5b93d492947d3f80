"""What a server takes while it runs: memory, processor time, and its database."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

_PAUSE = 1.0  # seconds between looks
_MIB = 1 << 20


@dataclass
class Load:
    """Of the server's processes together. Memory is in MiB, as each process has it resident (RSS)."""

    memory: float = 0.0  # largest sum at one moment
    database: float = 0.0  # MiB at the end, with its log
    cpu: dict[str, float] = field(default_factory=dict)  # seconds, by program


@contextmanager
def watching(pid: int, database: Path) -> Iterator[Load]:
    """Look at a server every second, for as long as the block runs."""
    load, stop = Load(), threading.Event()
    seen: dict[int, tuple[str, float]] = {}

    def look() -> None:
        while not stop.wait(_PAUSE):
            _look(load, seen, pid, database)

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield load
    finally:
        stop.set()
        watcher.join()


def _look(load: Load, seen: dict[int, tuple[str, float]], pid: int, database: Path) -> None:
    memory = 0.0
    try:
        parent = psutil.Process(pid)
        family = [parent, *parent.children(recursive=True)]
    except psutil.Error:
        return
    for each in family:
        try:
            memory += each.memory_info().rss / _MIB
            times = each.cpu_times()
            seen[each.pid] = (_program(each.cmdline()), times.user + times.system)
        except psutil.Error:  # it has ended meanwhile
            continue
    load.memory = max(load.memory, memory)
    load.database = (
        sum(path.stat().st_size for path in database.parent.glob(f"{database.name}*") if path.exists()) / _MIB
    )
    load.cpu = {}
    for name, seconds in seen.values():
        load.cpu[name] = round(load.cpu.get(name, 0.0) + seconds, 2)


def _program(words: list[str]) -> str:
    """A short name of a command."""
    known = {"solera.deploy.edge.guard": "SuperLink", "solera.deploy.edge.executor": "executor"}
    for word in words:
        if word in known:
            return known[word]
        if word.endswith("flwr-serverapp"):
            return "server's app"
    return Path(words[0]).name if words else "?"
