"""solera device outbox and forget: what has left a device, and what is deleted on it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from solera.cli.demo import shapes
from solera.cli.folder import Folder, Yes, confirm
from solera.cli.output import Json, err, out, print_json, table
from solera.core.text import counted


def outbox(
    folder: Folder,
    raw: Annotated[
        bool, typer.Option("--raw", help="Show arrays, sizes, digests and processing steps of each message.")
    ] = False,
    json: Json = False,
) -> None:
    """Show everything that has ever left the device, and what it told the server.

    Example: solera device outbox me
    """
    from solera.device.device import Device
    from solera.device.outbox import is_seen

    sent = Device.open(folder).outbox()
    if json:
        print_json(sent)
        return
    if not sent:
        out.print("nothing has ever left this device")
        return
    if raw:
        _raw(sent)
        return
    table(
        "What left this device",
        ("time (UTC)", "round", "what it told the server", "bytes"),
        ((_time(each), _round(each), each["told"], each["bytes"]) for each in sent),
    )
    seen, hidden = sum(map(is_seen, sent)), sum(each["kind"] == "mask" for each in sent)
    out.print(
        f"{counted(seen, 'upload', 'uploads')} that the server could read,"
        f" {counted(hidden, 'upload', 'uploads')} hidden in sums",
        highlight=False,
    )
    if seen:
        hint = f"next: solera device policy {folder} --no-plain refuses uploads that the server can read"
        out.print(hint, style="dim", highlight=False, soft_wrap=True)


def _raw(sent: list[dict[str, Any]]) -> None:
    table(
        "What left this device",
        ("time (UTC)", "message", "round", "arrays and lists", "bytes", "sha256", "steps"),
        (
            (
                _time(each),
                each["kind"],
                _round(each),
                shapes(each),
                each["bytes"],
                each["sha256"][:16],
                ", ".join(each["steps"]),
            )
            for each in sent
        ),
    )


def _time(sent: dict[str, Any]) -> str:
    return f"{datetime.fromtimestamp(sent['time'], UTC):%Y-%m-%d %H:%M:%S}"


def _round(sent: dict[str, Any]) -> int | None:
    """The round as people count it; None outside rounds."""
    return None if sent["round"] < 0 else sent["round"] + 1


def forget(
    folder: Folder,
    item: Annotated[
        str | None, typer.Option(help="Delete this item (id or title) for one --user, or for all users.")
    ] = None,
    user: Annotated[str | None, typer.Option(help="Delete everything about this user.")] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Delete every user and the record of what was sent.")
    ] = False,
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Delete items or users, and overwrite the deleted data on disk. It asks first.

    Example: solera device forget me --item "The Matrix (1999)"

    Example: solera device forget me --all --yes
    """
    from solera.core.errors import ConfigError, DeviceError
    from solera.device.device import ME, Device

    if everything == (item is not None or user is not None):
        raise ConfigError("choose what to delete", "give --item, --user or both; or --all alone")
    device = Device.open(folder)
    users = {each["name"]: each["interactions"] for each in device.status()["users"]}
    if user is not None and user not in users:
        raise DeviceError(f"this device has no user {user!r}", f"users: {', '.join(users) or 'none'}")
    sent = len(device.outbox())
    id_ = None if item is None else item if device.holds(item) else device.find(item, user or ME).id
    if id_ is not None:
        held = [user] if user else list(users)
        count = sum(each.item == id_ for name in held for each in device.entries.entries(name))
        what = f"{counted(count, 'entry', 'entries')} of {device.catalogue.title(id_)}"
    elif user is not None:
        what = f"{counted(users[user], 'entry', 'entries')} and everything else about user {user!r}"
    else:
        what = (
            f"{counted(sum(users.values()), 'entry', 'entries')}, everything about"
            f" {counted(len(users), 'user', 'users')}, and the record of what was sent"
        )
    if not (yes or json or id_):
        hint = f"a copy of a history: solera device history {folder} --user NAME -o history.csv"
        err.print(hint, style="dim", highlight=False, soft_wrap=True)
    confirm(what, yes=yes, json=json)
    gone = device.forget(item=id_, user=user)
    if json:
        print_json({"forgotten": gone, "sent_before": sent})
        return
    out.print(f"{counted(gone, 'entry', 'entries')} deleted", highlight=False)
    if sent:
        times = "once" if sent == 1 else f"{sent:,} times"
        out.print(f"what left the device before ({times}) cannot be called back", highlight=False)
