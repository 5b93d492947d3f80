"""Start a command again on several workers."""

from __future__ import annotations

import os
import sys
import uuid
from pathlib import Path

_RESTARTS = 3  # of all ranks, after one was lost


def start_workers(workers: int, out: Path) -> None:
    """Run this command on so many ranks of this machine, writing to `out`. Returns when they are done."""
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    from solera.core.errors import RunError
    from solera.runs import StoppedError

    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=workers,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=_RESTARTS,
        monitor_interval=0.2,
    )
    try:
        elastic_launch(config, sys.executable)("-m", "solera", *_arguments(sys.argv[1:], out))
    except SignalException:
        raise StoppedError(
            f"the workers were stopped; {out} has the last checkpoint",
            "give the same command again with --resume",
        ) from None
    except ChildFailedError as error:
        _, failure = error.get_first_failure()
        raise RunError(
            f"worker {failure.local_rank} ended with {failure.exitcode}; its error is above",
            "give the same command again with --resume",
        ) from None


def is_rank() -> bool:
    """Whether torchrun has started this process, directly or by `start_workers`."""
    from torch.distributed import is_torchelastic_launched

    return is_torchelastic_launched()


def is_first_rank() -> bool:
    """Whether this process speaks for all: it has no others beside it, or is the first of them."""
    return os.environ.get("RANK", "0") == "0"


def _arguments(given: list[str], out: Path) -> list[str]:
    """The same arguments without --workers, and with the run's folder."""
    kept: list[str] = []
    skip = False
    for argument in given:
        if skip:
            skip = False
        elif argument in {"--workers", "--out"}:
            skip = True
        elif not argument.startswith(("--workers=", "--out=")):
            kept.append(argument)
    return [*kept, "--out", str(out)]
