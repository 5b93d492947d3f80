"""A whole federation on this machine: keys, devices, server, nodes, rounds; all of it taken down again."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from solera.core.errors import ConfigError
from solera.data.interactions import Interactions
from solera.device import keys as publisher
from solera.device.bundle import Bundle
from solera.device.device import Device
from solera.device.publish import catalogue_of, start
from solera.device.recommending import DeviceRecommendation
from solera.federation.common.address import Address
from solera.federation.common.authority import make_keys
from solera.federation.operate import node_process, server
from solera.federation.operate import run as rounds_of
from solera.federation.operate.households import Households, start_of
from solera.federation.operate.processes import free_port
from solera.federation.server.folder import FederationFolder

Figures = dict[str, float]
_METRICS = ("hr@10", "ndcg@10")


@dataclass(frozen=True)
class Demo:
    """Result of the demo."""

    rounds: list[rounds_of.Round]
    before: Figures  # of the held-back items, ranked against the whole catalogue
    after: Figures
    user: str  # somebody on the first node
    held_back: str  # a title
    recommended: list[DeviceRecommendation]
    sent: list[dict[str, Any]]  # the outbox of that node
    seconds: float


def run(
    data: Interactions,
    *,
    method: str,
    nodes: int,
    users: int,
    rounds: int,
    tell: Callable[[str], None],
    on_round: Callable[[rounds_of.Round], None],
    keep: Path | None = None,
) -> Demo:
    """Everything, step by step, each told before it begins; nothing is left but `keep`, if given."""
    began = time.monotonic()
    with _folder(keep) as root:
        homes = [root / f"home-{number}" for number in range(1, nodes + 1)]
        households = Households.choose(data, homes, users)
        bundle = _publish(root, data, method, tell)
        tell(f"{nodes} devices, {users} users of {data.name} on each, the last item of every user held back")
        households.create(bundle)
        before = _figures(households, start_of(bundle))
        finished = _federate(root, households, bundle, rounds=rounds, tell=tell, on_round=on_round)
        tell("ranking the held-back items on every device")
        after = _figures(households)
        someone = int(households.users[0][0])
        device = Device.open(homes[0])
        shown = device.recommend(10, user=households.name(someone))
        sent = device.outbox()
        device.close()
    return Demo(
        rounds=finished,
        before=before,
        after=after,
        user=households.name(someone),
        held_back=data.title(households.held_back(someone)),
        recommended=shown,
        sent=sent,
        seconds=time.monotonic() - began,
    )


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        if keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
            raise ConfigError(f"{keep} is not empty", "give --keep a new folder")
        keep.mkdir(mode=0o700, parents=True, exist_ok=True)
        yield keep
        return
    root = Path(tempfile.mkdtemp(prefix="solera-demo-"))
    try:
        yield root
    finally:
        shutil.rmtree(root)


def _publish(root: Path, data: Interactions, method: str, tell: Callable[[str], None]) -> Bundle:
    items = catalogue_of(data)
    tell(f"a publisher's key; a bundle of {method} and {len(items):,} items, signed with it")
    secret, _ = publisher.make_keys(root / "publisher")
    return start(method, items, root / "start.bundle", secret)


def _federate(
    root: Path,
    households: Households,
    bundle: Bundle,
    *,
    rounds: int,
    tell: Callable[[str], None],
    on_round: Callable[[rounds_of.Round], None],
) -> list[rounds_of.Round]:
    nodes, folder, keys = len(households.folders), root / "federation", root / "keys"
    tell(f"an authority, the server's certificate, {nodes} node keys")
    make_keys(keys, nodes)
    address = Address("127.0.0.1", free_port(), (keys / "ca.pem").resolve())
    finished: list[rounds_of.Round] = []

    def done(round_: rounds_of.Round) -> None:
        finished.append(round_)
        on_round(round_)

    with ExitStack() as stack:
        tell(f"the server, with TLS, at {address}")
        stack.enter_context(server.running(folder, address, keys.resolve()))
        tell(f"{nodes} nodes, each with a key of its own")

        def join(number: int) -> None:
            key = (keys / "nodes" / f"node-{number + 1}").resolve()
            stack.enter_context(node_process.running(households.folders[number], address, key))

        with ThreadPoolExecutor(nodes) as pool:  # waits for all, so that all are ended again
            list(pool.map(join, range(nodes)))
        settings = {"rounds": rounds, "min_nodes": nodes}
        FederationFolder.prepare(folder, bundle, settings, resume=False)
        tell("the federation")
        rounds_of.run(folder, done, nodes=nodes)
        tell("nodes and server end")
    return finished


def _figures(households: Households, *start: Any) -> Figures:
    found = households.evaluate(*start).full
    return {name: found[name] for name in _METRICS}
