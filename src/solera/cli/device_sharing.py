"""solera device outbox, policy, join and leave: what has left a device, and what its owner allows."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from string import hexdigits
from typing import Annotated, Any, Literal

import typer

from solera.cli.folder import Folder
from solera.cli.options import takes_fields
from solera.cli.output import Answer, Line, Table, answers
from solera.core.text import counted
from solera.device.policy import Policy


@answers
def outbox(
    folder: Folder,
    raw: Annotated[
        bool, typer.Option("--raw", help="Show arrays, sizes, digests and processing steps of each message.")
    ] = False,
    pairs: Annotated[
        bool, typer.Option("--pairs", help="Show each item and pair that went in a threshold report.")
    ] = False,
) -> Answer:
    """Show everything that has ever left the device, and what it told the server.

    Example: solera device outbox me

    Example: solera device outbox me --pairs
    """
    from solera.device.device import Device
    from solera.device.outbox import is_seen

    sent = Device.open(folder).outbox()
    if not sent:
        return Answer(sent, ["nothing has ever left this device"])
    if raw:
        return Answer(sent, [_raw(sent)])
    if pairs:
        return Answer(sent, _pairs(sent))
    seen, hidden = sum(map(is_seen, sent)), sum(each["kind"] == "mask" for each in sent)
    said: list[Table | Line | str] = [
        Table(
            "What left this device",
            ("time (UTC)", "round", "what it told the server", "bytes"),
            [(_time(each), _round(each), each["told"], each["bytes"]) for each in sent],
        ),
        f"{counted(seen, 'upload', 'uploads')} that the server could read,"
        f" {counted(hidden, 'upload', 'uploads')} hidden in sums",
    ]
    if seen:
        hint = (
            f"next: solera device policy {folder} --no-allow-plain refuses uploads that the server can read"
        )
        said.append(Line(hint, "dim"))
    return Answer(sent, said)


def _raw(sent: list[dict[str, Any]]) -> Table:
    rows = [
        (
            _time(each),
            each["kind"],
            _round(each),
            ", ".join(f"{name} {'×'.join(map(str, shape))}" for name, shape in each["tensors"].items()),
            each["bytes"],
            each["sha256"][:16],
            ", ".join(each["steps"]),
        )
        for each in sent
    ]
    columns = ("time (UTC)", "message", "round", "arrays and lists", "bytes", "sha256", "steps")
    return Table("What left this device", columns, rows)


def _pairs(sent: list[dict[str, Any]]) -> list[Table | Line | str]:
    reports = {(each["federation"], each["round"]): each for each in sent if each["kind"] == "reports"}
    rows = [
        (_time(each), *(f"{' and '.join(pair)}" if pair else "of an item that you have deleted",))
        for each in reports.values()
        for pair in each["pairs"]
    ]
    return [
        Table("What went in threshold reports", ("time (UTC)", "item or pair"), rows),
        "The server reads those that enough devices have reported in the same epoch, and not whose they are."
        " The helper reads none. None can be called back.",
    ]


def _time(sent: dict[str, Any]) -> str:
    return f"{datetime.fromtimestamp(sent['time'], UTC):%Y-%m-%d %H:%M:%S}"


def _round(sent: dict[str, Any]) -> int | None:
    """The round as people count it; None outside rounds."""
    return None if sent["round"] < 0 else sent["round"] + 1


@answers
@takes_fields(Policy)
def policy(
    folder: Folder,
    *,
    settings: dict[str, Any],
    unpin: Annotated[
        bool,
        typer.Option("--unpin", help="Forget the pinned list of nodes, and no longer answer masked rounds."),
    ] = False,
) -> Answer:
    """Show or change the limits that this device enforces, whatever a server asks for.

    A limit of 0 is none for the clip, the noise and both ε.

    Example: solera device policy me --least-nodes 20 --least-noise 1 --epsilon 8
    """
    from pydantic import ValidationError

    from solera.core.errors import ConfigError
    from solera.device.device import Device

    optional = {name for name, field in Policy.model_fields.items() if field.default is None}
    given = {name: None if name in optional and value == 0 else value for name, value in settings.items()}
    device = Device.open(folder)
    found = Policy.read(device.store)
    try:
        changed = Policy.model_validate(found.model_dump() | given)
    except ValidationError as error:
        wrong = error.errors()[0]
        option = f"--{str(wrong['loc'][0]).replace('_', '-')}"
        raise ConfigError(f"{option}: {wrong['msg']}", "see solera device policy --help") from None
    if changed != found:
        changed.write(device.store)
    if unpin:
        from solera.federation.node.membership import Membership

        Membership.forget(device.store)
    rows = [
        (f"--{name.replace('_', '-')}", _shown(value), Policy.model_fields[name].description or "")
        for name, value in changed.model_dump().items()
    ]
    return Answer(changed.model_dump(), [Table("What this device allows", ("option", "value", ""), rows)])


def _shown(value: Any) -> str:
    if value is None:
        return "no limit"
    return ("yes" if value else "no") if isinstance(value, bool) else f"{value:g}"


@answers
def join(
    folder: Folder,
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="[INVITATION|FEDERATION]",
            help="File of an invitation, or the id of a federation that has asked, or its first letters. "
            "Without it you are asked to paste the link of an invitation.",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Agree to an invitation without being asked.")] = False,
    *,
    json: bool,
) -> Answer | None:
    """Agree to take part in a federation: one that invites you, or one that has asked this device.

    An invitation is shown before anything changes: what is asked for, and what your policy forbids. The
    device makes a key of its own, and holds the server to what was shown. Nothing is sent before `solera node
    start`.

    Example: solera device join me node-3.invitation

    Example: solera device join me 3f2a
    """
    if what is not None and set(what) <= set(hexdigits) and not Path(what).exists():
        return _decide(folder, what, "join")
    from solera.cli.invitation import accept

    return accept(folder, what, yes=yes, json=json)


@answers
def leave(
    folder: Folder,
    federation: Annotated[
        str | None,
        typer.Argument(
            help="Id of the federation, or its first letters; `solera device status` lists the ids. Without "
            "it, the one whose invitation you have accepted.",
        ),
    ] = None,
    pause: Annotated[bool, typer.Option("--pause", help="Only until you join it again.")] = False,
) -> Answer:
    """Leave a federation. What has already left the device cannot be taken back.

    Without an id, the server's address and the device's key are removed too, and the device joins nothing
    again by itself. To return, ask for another invitation.

    Example: solera device leave me

    Example: solera device leave me 3f2a --pause
    """
    if federation is not None:
        return _decide(folder, federation, "pause" if pause else "leave")
    from solera.cli.invitation import leave as leave_invited
    from solera.core.errors import ConfigError

    if pause:
        raise ConfigError(
            "the federation to pause is missing", f"solera device status {folder} lists the ids"
        )
    return leave_invited(folder)


def _decide(folder: Path, start: str, what: Literal["join", "pause", "leave"]) -> Answer:
    from solera.core.errors import DeviceError
    from solera.device.device import Device
    from solera.device.ledger import Ledger

    ledger = Ledger(Device.open(folder).store)
    found = [each for each in ledger.federations() if each["id"].startswith(start)]
    if len(found) != 1:
        known = ", ".join(each["id"][:12] for each in ledger.federations()) or "none has asked yet"
        number = "no federation" if not found else "more than one federation"
        raise DeviceError(f"{number} has an id that begins with {start!r}", f"known federations: {known}")
    chosen = found[0]["id"]
    {"join": ledger.join, "pause": ledger.pause, "leave": ledger.leave}[what](chosen)
    return Answer(
        {"federation": chosen, "standing": ledger.standing(chosen)},
        [f"you have {ledger.standing(chosen)} federation {chosen}"],
    )
