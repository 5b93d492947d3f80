"""solera device outbox, policy, join, leave and contribute: what leaves a device, and what is allowed."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from string import hexdigits
from typing import Annotated, Any, Literal

import typer

from solera.cli.folder import Folder, User
from solera.cli.options import takes_fields
from solera.cli.output import Answer, Line, Table, answers, out
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
        (_time(each), _joint(each).join(pair) if pair else "of an item that you have deleted")
        for each in reports.values()
        for pair in each["pairs"]
    ]
    return [
        Table("What went in threshold reports", ("time (UTC)", "item or pair"), rows),
        "The server reads those that enough devices have reported in the same epoch, and not whose they are."
        " The helper reads none. None can be called back.",
    ]


def _joint(sent: dict[str, Any]) -> str:
    from solera.device.outbox import is_ordered

    return ", later " if is_ordered(sent) else " and "


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


@answers
def contribute(
    folder: Folder,
    helper: Annotated[str | None, typer.Option(metavar="URL", help="Agree: the helper's address.")] = None,
    server_key: Annotated[
        str | None, typer.Option(metavar="HEX", help="Agree: the public key of the server.")
    ] = None,
    newest: Annotated[
        int, typer.Option(help="Agree: how many of the newest items a new one makes pairs with.", min=1)
    ] = 20,
    stop: Annotated[bool, typer.Option("--stop", help="No longer take part.")] = False,
    user: User = "me",
    yes: Annotated[bool, typer.Option("--yes", help="Agree without being asked, as programs do.")] = False,
    *,
    json: bool,
) -> Answer:
    """Report what is new in your history, once: a server learns what many devices have in common.

    With --helper and --server-key you agree, after you have seen the terms. Without options one message goes;
    run it once in an epoch, for example every night. docs/federation/reports.md says who sees what.

    Example: solera device contribute me --helper https://helper.example --server-key HEX

    Example: solera device contribute me
    """
    from solera.core.errors import ConfigError
    from solera.device import reports
    from solera.device.device import Device
    from solera.federation.reports.contributing import agree, contribute, offered
    from solera.federation.reports.start import read_public

    if (helper is None) != (server_key is None) or (stop and helper is not None):
        raise ConfigError(
            "what to do is not clear", "give both --helper and --server-key, or --stop, or neither"
        )
    device = Device.open(folder)
    if stop:
        reports.end(device.store)
        return Answer(
            {"stopped": True}, ["nothing is reported any more; what has gone cannot be called back"]
        )
    if helper is not None and server_key is not None:
        plan = offered(helper, read_public(server_key))
        agreement = reports.Agreement(
            helper=helper,
            server=server_key.lower(),
            federation=plan.federation,
            least_devices=plan.least_devices,
            newest=newest,
            ordered=reports.asks_for_order(device.bundle),
            user=user,
        )
        if json and not yes:
            raise ConfigError("you have not agreed", "run it without --json to see the terms, or give --yes")
        if not yes:
            for sentence in _terms(agreement):
                out.print(sentence, highlight=False, soft_wrap=True)
            typer.confirm("Do you agree?", abort=True, err=True)
        public = agree(device, agreement)
        return Answer(
            agreement.model_dump() | {"key": str(public)},
            [
                f"you take part in {plan.federation}; nothing has been reported yet",
                Line(f"next: give {public} to the helper's operator", "dim"),
                Line(f"then, once in an epoch: solera device contribute {folder}", "dim"),
            ],
        )
    epoch, went = contribute(device)
    said = f"{counted(went, 'item or pair has', 'items and pairs have')} gone in epoch {epoch}"
    hint = Line(f"next: solera device outbox {folder} --pairs", "dim")
    return Answer({"epoch": epoch, "went": went}, [said, hint])


def _terms(agreed: object) -> list[str]:
    from solera.device.reports import Agreement

    assert isinstance(agreed, Agreement)
    return [
        f"{agreed.federation} asks {agreed.user} for items, and for pairs of them, each once.",
        *(
            ["A pair tells which of the two came first, and roughly how many others came between."]
            if agreed.ordered
            else []
        ),
        f"The server reads those that at least {agreed.least_devices} devices report in an epoch,"
        " and not whose they are.",
        f"The helper at {agreed.helper} sees that this device takes part, and nothing of the history.",
        "Both together can read everything.",
        "What has gone cannot be called back, also not by deleting the item.",
    ]
