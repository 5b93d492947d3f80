"""A command that is refused changes nothing: every file of every folder it was given is as it was.

Locks may come; they are empty files. Each command of the command line is here with the ways in which it is
refused, or in a list of those that write nothing.
"""

from __future__ import annotations

import gc
import hashlib
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import typer
from attack import attack
from real_nodes import RealNodes
from typer.testing import CliRunner

from commands import solera
from one_process import Local
from solera.cli import WRONG_USE, app
from solera.cli.lazy import subcommands
from solera.core.errors import SoleraError
from solera.device import keys as publisher
from solera.device.bundle import Item
from solera.device.device import Device
from solera.device.ledger import Ledger
from solera.device.policy import Agreement
from solera.device.publish import start
from solera.federation.common.authority import make_keys
from solera.federation.node.membership import pin
from solera.federation.operate import server
from solera.federation.operate.backup import backup
from solera.federation.operate.inviting import invitation
from solera.federation.secure.roster import ROSTER

KEY = 64 * "0"
REFUSED = {
    "train": [
        "train fedmf --data plays.csv --out run",
        "train fedmf --data plays.csv --out run --resume --rounds 1 -o no_such=1",
        "train fedmf --data missing.csv --out other",
        "train fedmf --data plays.csv --columns user=nobody --out other",
        "train fedmf --data plays.csv --dp epsilon=1 --out other",
        "train ease --data missing.csv",
        "train ease --data plays.csv --out other",
    ],
    "fit": [
        "fit missing.csv --out models",
        "fit plays.csv --out models -o no_such=1",
        "fit plays.csv --out models --method no_such",
        "fit plays.csv --out models --update",
    ],
    "serve": ["serve missing", "serve run"],
    "recommend": [
        "recommend run --user nobody -o list.csv",
        "recommend missing --all -o list.csv",
        "recommend run --all -o list.nothing",
        "recommend run --like nothing",
    ],
    "export": ["export missing --onnx model.onnx", "export run --onnx model.onnx"],
    "blend": ["blend run missing --out blended", "blend run run --out run"],
    "sweep": [
        "sweep fedmf --data plays.csv --axis no_such=1,2 --out swept",
        "sweep fedmf --data missing.csv --axis learning_rate=1,2 --out swept",
    ],
    "compare": ["compare fedmf no_such --data plays.csv --out compared"],
    "report": ["report missing -o report.html", "report run missing -o report.html"],
    "data synthesize": ["data synthesize -o plays.parquet --users 0"],
    "bundle keygen": ["bundle keygen -o publisher"],
    "bundle export": [
        "bundle export missing -o new.bundle --key publisher.key",
        "bundle export run -o new.bundle --key films.bundle",
    ],
    "bundle new": [
        "bundle new no_such --catalogue items.csv -o new.bundle --key publisher.key",
        "bundle new fedmf --catalogue missing.csv -o new.bundle --key publisher.key",
        "bundle new fedmf --catalogue items.csv -o new.bundle --key publisher.pub",
    ],
    "bundle make": [
        "bundle make no-such-data -o new.bundle --key publisher.key",
        "bundle make ml-100k -o new.bundle --key foreign.pub",
        "bundle make ml-100k -o new.bundle --key missing.key",
        "bundle make ml-100k -o new.bundle --key publisher.key --method fedmf",
        "bundle make ml-100k -o missing/new.bundle --key publisher.key",
    ],
    "bundle extend": [
        "bundle extend films.bundle -o new.bundle --key foreign.key --catalogue items.csv",
        "bundle extend films.bundle -o films.bundle --key publisher.key --catalogue missing.csv",
    ],
    "bundle page": ["bundle page films.bundle -o page --key foreign.pub", "bundle page missing -o page"],
    "bundle show": ["bundle show missing --vectors vectors.json"],
    "device init": [
        "device init me --bundle films.bundle --key publisher.pub",
        "device init other --bundle films.bundle --key foreign.pub",
        "device init other --bundle broken.bundle --key publisher.pub",
    ],
    "device update": [
        "device update me --bundle foreign.bundle",
        "device update me --bundle broken.bundle",
        "device update missing --bundle films.bundle",
        "device update me --back",
        "device update me",
    ],
    "device add": [
        "device add me no-such-item",
        "device add me 1 --time tomorrow",
    ],
    "device import": [
        "device import me letterboxd broken.bundle",
        "device import me missing missing.csv",
        "device import me csv half.csv",
        "device import me letterboxd half.csv",
        "device import missing jellyfin plays.csv --watch 1",
        "device import me csv plays.csv --watch 1",
    ],
    "device match": ["device match me Unknown --item no-such-item", "device match me Unknown --remove"],
    "device history": ["device history me -o history.pdf"],
    "device correct": ["device correct me 99 --item 1", "device correct me 1 --item no-such-item"],
    "device forget": [
        "device forget me --yes",
        "device forget me 99 --yes",
        "device forget me 1 99 --yes",
        "device forget me 1 --all --yes",
        "device forget me 1 --item 1 --yes",
        "device forget me --item no-such-item --yes",
        "device forget me --user nobody --everything --yes",
    ],
    "device policy": [
        "device policy me --least-nodes 1",
        "device policy me --least-nodes 5 --least-share 2",
        "device policy me --least-nodes 5 --delta 2",
    ],
    "device join": [
        "device join me 0123",
        "device join me expired.invitation --yes",
        "device join me broken.bundle --yes",
        "device join me unsigned.invitation --yes",
        "device join invited other.invitation --yes",
        "device join me other.invitation --json",
    ],
    "device leave": [
        "device leave me 0123",
        "device leave me 0123 --pause",
        "device leave me --pause",
        "device leave pinned",
    ],
    "device token": [
        "device token me --create name --scope no-such",
        "device token me --create name",
        "device token me --revoke 9",
    ],
    "device contribute": [
        "device contribute me",
        "device contribute me --yes --helper http://127.0.0.1:9 --server-key " + KEY,
        "device contribute me --yes --helper http://helper.example --server-key 00",
        "device contribute missing",
    ],
    "device connect": [
        "device connect me no-such --url http://127.0.0.1:9",
        "device connect me kodi --url http://8.8.8.8:8080",
        "device connect me kodi --url http://127.0.0.1:9",
        "device connect me jellyfin --url http://127.0.0.1:9 --key key",
        "device connect me mpd --url mpd://127.0.0.1:9",
        "device connect me kodi --remove",
        "device connect missing kodi --url http://127.0.0.1:9",
        "device connect missing --refresh",
        "device connect me kodi --refresh",
    ],
    "device addon": [
        "device addon me -o addon.pdf",
        "device addon me -o missing/addon.zip",
        "device addon missing -o addon.zip",
        "device addon me -o addon.zip --url nowhere",
    ],
    "helper start": [
        "helper start helper --federation films --server https://h:9 --server-key 00 --devices keys/nodes",
        f"helper start helper --federation films --server nowhere --server-key {KEY} --devices keys/nodes",
        f"helper start helper --federation films --server https://h:9 --server-key {KEY} --devices missing",
    ],
    "helper serve": [
        "helper serve reports --federation films --helper missing",
        "helper serve reports --federation films --helper keys/nodes --database mysql://films",
        "helper serve reports --federation films --helper keys/nodes --database postgresql://nobody@127.0.0.1:9/films",
    ],
    "helper counts": ["helper counts missing --federation films", "helper counts films --federation films"],
    "helper solve": [
        "helper solve missing --federation films --bundle films.bundle -o new.bundle --key publisher.key",
        "helper solve films --federation films --bundle missing -o new.bundle --key publisher.key",
    ],
    "federation demo": ["federation demo --data missing.csv --keep kept"],
    "federation invite": [
        "federation invite keys ../../node-9 --server h.example:80",
        "federation invite keys node-9 --server nowhere",
        "federation invite missing node-9 --server h.example:80",
        "federation invite unsigned node-9 --server h.example:80 --masked",
        "federation invite keys node-9 --server h.example:80 --qr missing/code.svg",
    ],
    "federation serve": ["federation serve served --settings broken.toml", "federation serve films"],
    "federation rollback": ["federation rollback films", "federation rollback films --to 9"],
    "federation backup": [
        "federation backup films -o backup.tar.gz",
        "federation backup films -o missing/backup.tar.gz",
        "federation backup missing -o new.tar.gz",
    ],
    "federation restore": [
        "federation restore broken.bundle films",
        "federation restore foreign.tar.gz films",
        "federation restore masked.tar.gz lost",
    ],
    "federation keys": ["federation keys plays.csv --nodes 3"],
    "federation roster": ["federation roster missing", "federation roster unsigned --roster-key missing"],
    "federation run": [
        "federation run films --bundle films.bundle",
        "federation run films --resume --rounds 9 --bundle foreign.bundle",
        "federation run masked --resume --dp epsilon=8,delta=1e-5",
        "federation run other --bundle films.bundle --dp epsilon=8 --secure-aggregation",
    ],
    "server start": [
        "server start films --keys missing",
        "server start films --keys keys --insecure",
        "server start films",
        "server start films --keys keys --workers 2",
        "server start films --keys keys --database mysql://films",
        "server start films --keys keys --database postgresql://nobody@127.0.0.1:9/films",
    ],
    "server register": ["server register films keys/nodes/node-1.pub", "server register films missing.pub"],
    "server revoke": ["server revoke films keys/nodes/node-1.pub"],
    "node start": [
        "node start me",
        "node start me --server localhost:9",
        "node start me --server localhost:9 --ca keys/ca.pem --key missing --join",
        "node start me --server localhost:9 --ca keys/ca.pem --key keys/nodes/node-1.pub --join",
        "node start pinned --server localhost:9 --ca foreign/ca.pem --key foreign/nodes/node-1 --join"
        " --roster foreign/roster.json",
        "node start pinned --server localhost:9 --insecure --join",
    ],
}
LOOKS = [
    *("methods", "doctor", "data show", "data audit"),
    *("device recommend", "device outbox", "device status", "federation status"),
]
OWN = ["device open"]  # folders of their own, a service
RESEARCH = ("attack", "bench", "leak", "paper", "poison")  # refused commands of these are tested there


def leaves(command: object, name: tuple[str, ...] = ()) -> Iterator[str]:
    below = subcommands(command)
    if not below:
        yield " ".join(name)
    for each, inner in below.items():
        yield from leaves(inner, (*name, each))


def test_every_command_is_here():
    known = {*REFUSED, *LOOKS, *OWN}
    there = {name for name in leaves(typer.main.get_command(app)) if name.split()[0] not in RESEARCH}
    assert there == known


def files(root: Path) -> dict[str, str]:
    """Contents and rights of everything but locks."""
    found = {}
    for path in sorted(root.rglob("*")):
        if path.is_file() and path.suffix != ".lock" and path.name != "lock":
            content = hashlib.sha256(path.read_bytes()).hexdigest()
            found[str(path.relative_to(root))] = f"{path.stat().st_mode:o} {content}"
    return found


@pytest.fixture(scope="module")
def place(tmp_path_factory, publisher_key) -> Path:
    """What a person or an operator has: keys, bundles, devices, federations, runs, broken files."""
    root = tmp_path_factory.mktemp("place")
    for name in ("publisher", "foreign"):
        publisher.make_keys(root / name)
    make_keys(root / "keys", 3)
    make_keys(root / "foreign", 1)
    make_keys(root / "unsigned", 1)
    (root / "unsigned" / "roster.pub").unlink()
    items = [Item(str(number), f"Film {number}", None) for number in range(24)]
    options = {"embedding_size": 4}
    bundle = start("fedmf", items, root / "films.bundle", root / "publisher.key", options=options)
    start("fedmf", items, root / "foreign.bundle", root / "foreign.key", options=options)
    (root / "items.csv").write_text("id,title\n" + "".join(f"{n},Film {n}\n" for n in range(24)))
    (root / "broken.bundle").write_bytes((root / "films.bundle").read_bytes()[:500])
    (root / "broken.toml").write_text("bundle = 7\n")
    (root / "half.csv").write_bytes(b'Date,Name\n2024-01-01,"Film 1\n\0')
    plays = [(user, item, 10 * user + item) for user in range(12) for item in range(user % 3, 24, 3)]
    (root / "plays.csv").write_text("user,item,time\n" + "".join(f"{u},{i},{t}\n" for u, i, t in plays))
    for name in ("me", "pinned", "invited"):
        with closing(Device.create(root / name, bundle)) as device:
            device.add_all([(str(item), item) for item in range(6)], "me", "test")
    for line in (
        "train fedmf --data plays.csv --rounds 2 -o embedding_size=4 --out run",
        "federation roster keys",
        "federation roster foreign",
    ):
        assert run(root, line) == ""
    promise = Agreement(masked=True, least_nodes=50)
    for name, asked, days, household in (
        ("first", Agreement(), 14, "node-8"),
        ("other", Agreement(), 14, "node-9"),
        ("expired", Agreement(), -1, "node-9"),
        ("unsigned", promise, 14, "node-9"),
    ):
        made = invitation(root / "keys", household, "h.example:80", "films", asked, days=days)
        if name == "unsigned":
            made = made.model_copy(update={"roster_key": None})
        (root / f"{name}.invitation").write_text(made.model_dump_json(exclude_none=True))
    assert run(root, "device join invited first.invitation --yes") == ""
    for name, masked in (("films", False), ("masked", True)):
        (root / f"made-{name}").mkdir()
        federation = Local(
            root / f"made-{name}",
            key=root / "publisher.key",
            catalogue=items,
            histories=[[(5 * user + step) % 24 for step in range(6)] for user in range(3)],
            method="fedmf",
            options=options,
            precision="double",
            sizes=(1, 1, 1),
            settings={"secure_aggregation": True, "rounds": 1} if masked else {"rounds": 4},
            node_keys=root / "keys" if masked else None,
        )
        if not masked:
            federation.run(2)
        federation.close()
        shutil.copytree(federation.server.path, root / name)
        backup(root / name, root / f"{name}.tar.gz")
    shutil.copy(root / "films.tar.gz", root / "backup.tar.gz")
    (root / "foreign.tar.gz").write_bytes((root / "masked.tar.gz").read_bytes())
    pin(root / "pinned", root / "keys" / "nodes" / "node-2", root / "keys" / "ca.pem", root / "keys" / ROSTER)
    return root


def run(root: Path, line: str) -> str:
    """The error that a command ends with; empty if it does not."""
    here = Path.cwd()
    os.chdir(root)
    signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(20)
    try:
        error = CliRunner().invoke(app, line.split()).exception
    finally:
        signal.alarm(0)
        os.chdir(here)
    known = isinstance(error, SoleraError | WRONG_USE | SystemExit)
    said = "" if error is None else f"{'' if known else 'unexpected: '}{type(error).__name__}: {error}"
    del error
    gc.collect()  # what the end of a process closes
    return said


def _too_long(*_: object) -> None:
    raise TimeoutError


@attack(
    "crash",
    "A command that is refused changes nothing in the folders it was given.",
    before="a refused `solera node start` with another key pinned that key; the running node was shut out",
)
def test_refused_commands(place, reached):
    """Before: the row `membership` of device.db had another hash after the refusal."""
    lines, wrong = [line for each in REFUSED.values() for line in each], []
    after = files(place)
    for line in lines:
        before, said = after, run(place, line)
        after = files(place)
        if not said or said.startswith("unexpected"):
            wrong.append(f"{line}: {said or 'not refused'}")
        if changed := before.items() ^ after.items():
            wrong.append(f"{line}: changed {sorted({name for name, _ in changed})}")
    assert not wrong, "\n".join(wrong)
    reached(f"{len(lines)} refusals of {len(REFUSED)} commands: every file as it was")


@pytest.mark.slow
@attack(
    "crash",
    "A node whose key the server does not know has not joined, and has pinned nothing.",
    before="consent and key were written down before the server was asked",
)
def test_a_start_that_the_server_refuses(tmp_path, publisher_key, reached):
    """Before: `--join` of a refused start stayed in force for whichever federation asked next."""
    nodes = RealNodes(tmp_path, publisher_key, 2)
    make_keys(tmp_path / "foreign", 1)
    device, stranger = nodes.homes[0], tmp_path / "foreign" / "nodes" / "node-1"
    with closing(Device.open(device)) as opened:
        Ledger(opened.store).join_next(False)
    (nodes.keys / "roster.json").unlink()
    given = ("--server", nodes.address, "--ca", nodes.keys / "ca.pem", "--key", stranger, "--join")
    with server.running(nodes.folder, nodes.address, nodes.keys):
        before = files(device)
        refused = solera("node", "start", device, *given)
        assert "the server does not know the key" in refused.stderr
        now = files(device)
    assert {name: now[name] for name in before} == before
    reached("no consent, no key")
