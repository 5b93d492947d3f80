"""A whole federation on this machine: keys, devices, server, nodes, rounds; all of it taken down again."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from solera.core.closed_form import NEIGHBOURS
from solera.core.errors import ConfigError, DataError
from solera.core.types import Ints
from solera.data.interactions import Interactions, Split, history
from solera.data.ragged import Ragged
from solera.device import keys as publisher
from solera.device.bundle import Bundle
from solera.device.dates import DAY
from solera.device.device import Device
from solera.device.ledger import Ledger
from solera.device.model import Model, method_of
from solera.device.policy import Policy
from solera.device.publish import catalogue_of, start
from solera.device.recommending import DeviceRecommendation
from solera.device.tensors import Arrays
from solera.engine import State
from solera.evaluate import Evaluation, Evaluator, split
from solera.federation.common.address import Address
from solera.federation.common.authority import make_keys
from solera.federation.operate import node_process, server
from solera.federation.operate import serve as rounds_of
from solera.federation.operate.processes import free_port
from solera.federation.server.folder import FederationFolder

Figures = dict[str, float]
_METRICS = ("hr@10", "ndcg@10")
_SOURCE = "data set"


@dataclass(frozen=True, eq=False)
class Households:
    """Folders of devices, the users on each, and the split that says what they know and what is asked."""

    folders: list[Path]
    users: list[Ints]  # on each device, by their numbers in the data set
    split: Split

    @classmethod
    def choose(cls, data: Interactions, folders: Sequence[Path], users: int) -> Households:
        """Under `strict`: every user's last item, the test item, is held back, and the rest is known."""
        divided = split(data, "strict")
        asked = np.flatnonzero(divided.test.lengths)
        if len(asked) < users * len(folders):
            raise DataError(
                f"{data.name!r} has {len(asked)} users with an item to hold back,"
                f" not {len(folders)} × {users}",
                "give fewer --nodes or --users",
            )
        here: list[Ints] = np.split(asked[: users * len(folders)], len(folders))
        return cls(list(folders), here, divided)

    def name(self, user: int) -> str:
        """Name of a user on the device."""
        return str(self.split.data.user_map.id(user))

    def knows(self) -> Ragged:
        """All items but the one held back, oldest first, of every user of the data set."""
        return history(self.split, "test")

    def held_back(self, user: int) -> int:
        """The user's held-out item."""
        return int(self.split.test.row(user)[0])

    def create(self, bundle: Bundle, policy: Policy | None = None) -> None:
        """Make the devices, with all their users know. They agree to whichever federation asks first."""
        ids, known = self.split.data.item_map.ids, self.knows()
        for folder, users in zip(self.folders, self.users, strict=True):
            device = Device.create(folder, bundle)
            for user in users.tolist():
                items, days = known.row(user).tolist(), known.days_of(user)
                times = range(len(items)) if days is None else np.rint(days * DAY).astype(int).tolist()
                rows = [(str(ids[item]), time) for item, time in zip(items, times, strict=True)]
                device.add_all(rows, self.name(user), _SOURCE)
            if policy is not None:
                policy.write(device.store)
            Ledger(device.store).join_next()
            device.close()

    def evaluate(self, start: tuple[Arrays, Arrays] | None = None) -> Evaluation:
        """Rank the held-out items with the parameters in the folders, or with initial parameters."""
        devices = {
            user: device
            for folder, users in zip(self.folders, self.users, strict=True)
            for device in [Device.open(folder)]
            for user in users.tolist()
        }
        known = self.knows()

        def of_user(user: int) -> Tensor:
            device, name = devices[user], self.name(user)
            shared, own = start or (device.shared(name), device.kept(name))
            return Model(device.bundle, shared, own).scores(known.row(user), known.days_of(user))

        try:
            return Evaluator(self._asked(), seed=0).test(
                lambda users: torch.stack([of_user(user) for user in users.tolist()])
            )
        finally:
            for device in set(devices.values()):
                device.close()

    def _asked(self) -> Split:
        """The split, with nothing asked of users who are on no device."""
        asked = np.isin(np.arange(len(self.split.test)), np.concatenate(self.users))
        test = self.split.test
        kept = Ragged.of_lengths(np.where(asked, test.lengths, 0), test.values[asked[test.rows]])
        return replace(self.split, test=kept)


def start_of(bundle: Bundle) -> tuple[Arrays, Arrays]:
    """What a user has before the first round: the shared parameters, and own ones."""
    method, model = method_of(bundle), Model(bundle)
    if method.one_round:
        shapes = method.shared_shapes(bundle.manifest.items)
        return {
            name: np.zeros(v, np.int32 if name == NEIGHBOURS else np.float32) for name, v in shapes.items()
        }, {}
    state = State.initial(
        method,
        1,
        bundle.manifest.items,
        seed=bundle.manifest.seed,
        device=torch.device("cpu"),
        dtype=model.dtype,
    )
    shared = {name: v[0] if name in method.tailored else v for name, v in state.shared.items()}
    own = state.personal.of_client(0)
    return {n: v.numpy() for n, v in shared.items()}, {n: v.numpy() for n, v in own.items()}


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
