"""Two ranks of torch.distributed as real processes, each with a program of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from solera.federation.operate.processes import free_port

SECONDS = 100


def two_ranks(*programs: str) -> list[str]:
    """What the programs print, that of rank 0 first. A program can wait on its input until the others end."""
    joins = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": "2",
        "TORCHELASTIC_RUN_ID": "test",
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "GLOO_SOCKET_IFNAME": "lo",
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent / "adversary"), *filter(None, sys.path)]),
    }
    started = [
        subprocess.Popen(
            [sys.executable, "-c", program],
            env={**os.environ, **joins, "RANK": str(rank)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank, program in enumerate(programs)
    ]
    try:
        waiting = ["stdin.read" in program for program in programs]
        order = sorted(range(len(programs)), key=lambda rank: waiting[rank])
        said = {rank: started[rank].communicate(timeout=SECONDS)[0] for rank in order}
        return [said[rank] for rank in range(len(programs))]
    finally:
        for each in started:
            each.kill()
            each.wait()
