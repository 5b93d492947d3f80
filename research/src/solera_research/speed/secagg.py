"""Measure the cost of secure aggregation against plain sums of the same vectors."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from solera.privacy.identity import Identity, new_identity
from solera.privacy.secagg.messages import MaskedInput
from solera.privacy.secagg.rules import Stage
from solera.privacy.secagg.setup import Part
from solera.privacy.secagg.simulate import Step, make_setup, run_round

Vectors = NDArray[np.float32]


def measure(
    sizes: Sequence[int],
    *,
    clients: int = 20,
    dropped: int = 0,
    repeats: int = 3,
    on_size: Callable[[str], None] = lambda _: None,
) -> list[dict[str, Any]]:
    """Medians of rounds with vectors of these sizes: processor seconds, one thread, node keys of P-256.

    `dropped` clients share keys and send nothing more. The threshold is two thirds. Plain aggregation sends
    float32 in the same frame; both ways include reading, checking and writing of messages, and no network.
    """
    identities = [new_identity() for _ in range(clients)]
    found = []
    for size in sizes:
        on_size(f"{size:,} values")
        vectors = np.random.default_rng(0).normal(size=(clients, size)).astype(np.float32)
        _secure(identities, vectors, dropped)  # warms up
        secure = [_secure(identities, vectors, dropped) for _ in range(repeats)]
        plain = [_plain(vectors, dropped) for _ in range(repeats)]
        found.append({"values": size, "clients": clients, "dropped": dropped, **_summary(secure, plain)})
    return found


def _secure(identities: Sequence[Identity], vectors: Vectors, dropped: int) -> dict[str, Any]:
    """Seconds of the mean client and of the server by stage, and bytes to and from a client."""
    clients, size = vectors.shape
    part = Part(name="values", length=size, clip=8.0, fraction_bits=20)
    setup = make_setup(identities, 2 * clients // 3 + 1, [part])
    steps: list[Step] = []
    gone = dict.fromkeys(range(dropped), Stage.MASK)
    run_round(setup, identities, [{"values": each} for each in vectors], gone, on_step=steps.append)

    def mean_client(stage: Stage) -> float:
        return statistics.mean(s.seconds for s in steps if s.stage is stage and s.client is not None)

    stages = list(Stage)[:5]
    return {
        "client": {stage.name.lower(): mean_client(stage) for stage in stages},
        "server": {step.stage.name.lower(): step.seconds for step in steps if step.client is None},
        "all": sum(step.seconds for step in steps),
        "bytes_up": sum(len(s.sent[0]) for s in steps if s.client == clients - 1),
        "bytes_down": sum(len(s.sent[-1]) for s in steps if s.client is None and s.sent),
    }


def _plain(vectors: Vectors, dropped: int) -> dict[str, Any]:
    """The same for plain float32 vectors."""
    context = bytes(32)
    begin = time.thread_time()
    sent = [
        MaskedInput(context, n, (), vector.view(np.uint8).data).to_bytes()
        for n, vector in enumerate(vectors[dropped:])
    ]
    middle = time.thread_time()
    total = np.zeros(vectors.shape[1], np.float32)
    for data in sent:
        total += np.frombuffer(MaskedInput.from_bytes(data, context).vector, np.float32)
    end = time.thread_time()
    return {
        "client": (middle - begin) / len(sent),
        "server": end - middle,
        "all": end - begin,
        "bytes_up": len(sent[0]),
    }


def _summary(secure: list[dict[str, Any]], plain: list[dict[str, Any]]) -> dict[str, Any]:
    def median(values: Sequence[float]) -> float:
        return statistics.median(values)

    stages = list(secure[0]["client"])
    client = {stage: median([run["client"][stage] for run in secure]) for stage in stages}
    server = {stage: median([run["server"][stage] for run in secure]) for stage in stages}
    plain_client, plain_server = (median([run[who] for run in plain]) for who in ("client", "server"))
    return {
        "client_seconds": client,
        "server_seconds": server,
        "plain_client_seconds": plain_client,
        "plain_server_seconds": plain_server,
        "client_ratio": sum(client.values()) / plain_client,
        "server_ratio": sum(server.values()) / plain_server,
        "total_ratio": median([run["all"] for run in secure]) / median([run["all"] for run in plain]),
        "bytes_up": secure[0]["bytes_up"],
        "bytes_down": secure[0]["bytes_down"],
        "plain_bytes_up": plain[0]["bytes_up"],
        "bytes_up_ratio": secure[0]["bytes_up"] / plain[0]["bytes_up"],
    }
