"""solera device add, history, correct and forget: the entries of a history."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from solera.cli.folder import Folder, User, Yes, confirm
from solera.cli.output import Answer, Line, Table, answers, err
from solera.core.text import counted

if TYPE_CHECKING:
    from solera.device.device import Device
    from solera.device.history import Interaction


@answers
def add(
    folder: Folder,
    item: Annotated[str, typer.Argument(help="An item's id, or its title.")],
    time: Annotated[
        str | None, typer.Option(help="Time: 2024-05-01, 2024-05-01T20:15 or Unix seconds (default: now).")
    ] = None,
    user: User = "me",
) -> Answer:
    """Add an item to the history.

    Example: solera device add me "The Matrix (1999)" --time 2024-05-01
    """
    from solera.device.device import Device

    when = None if time is None else _seconds(time)
    device = Device.open(folder)
    found = device.find(item, user)
    new = device.add(found.id, time=when, user=user)
    return Answer(
        {"item": found.id, "title": found.title, "user": user, "added": new},
        [f"{'added' if new else 'known already'}: {found.title} (item {found.id})"],
    )


@answers
def history(
    folder: Folder,
    search: Annotated[str | None, typer.Option(help="Only entries whose title contains this text.")] = None,
    limit: Annotated[
        int, typer.Option("-n", "--limit", help="Show this many entries, the newest; 0 for all.", min=0)
    ] = 50,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Write all entries to this .csv or .json file instead."),
    ] = None,
    user: User = "me",
) -> Answer:
    """List or search the history, newest first, or export it to a file.

    Example: solera device history me --search matrix

    Example: solera device history me -o history.csv
    """
    from solera.device.device import Device

    entries = Device.open(folder).entries.entries(user, search or "")
    document = _as_json(entries)
    if output is not None:
        _export(entries, output)
        return Answer(document, [f"{output}: {counted(len(entries), 'entry', 'entries')}"])
    if not entries:
        what = f"no entry of {user} contains {search!r}" if search else f"{user} has no history yet"
        return Answer(document, [what])
    shown = entries[::-1][: limit or len(entries)]
    rows = [
        (each.number, each.date or "unknown", each.title, each.source, "" if each.counts else "seen only")
        for each in shown
    ]
    said: list[Table | Line] = [
        Table(f"History of {user}", ("entry", "time (UTC)", "title", "from", ""), rows)
    ]
    if len(shown) < len(entries):
        said.append(Line(f"the newest {len(shown):,} of {len(entries):,} entries; -n 0 shows all", "dim"))
    return Answer(document, said)


@answers
def correct(
    folder: Folder,
    number: Annotated[int, typer.Argument(help="Number of the entry; `solera device history` lists them.")],
    item: Annotated[str | None, typer.Option(help="It was this item: an id or a title.")] = None,
    time: Annotated[str | None, typer.Option(help='It was at this time; "" if that is unknown.')] = None,
    liked: Annotated[
        bool | None,
        typer.Option(
            "--liked/--seen-only",
            help="Use the item for recommendations, or only know it as seen (for all its entries).",
        ),
    ] = None,
    user: User = "me",
) -> Answer:
    """Correct an entry of the history: its item, its time, or whether it counts.

    Example: solera device correct me 12 --item "Twelve Monkeys (1995)" --time 2024-05-01
    """
    from solera.core.errors import ConfigError
    from solera.device.device import Device

    if item is None and time is None and liked is None:
        raise ConfigError("there is nothing to correct", "give --item, --time, --liked or --seen-only")
    device = Device.open(folder)
    old = device.entries.entry(user, number)
    new = device.entries.correct(
        user,
        number,
        item=None if item is None else device.find(item, user).id,
        time=old.time if time is None else _seconds(time),
        liked=liked,
    )
    return Answer(_as_json([new])[0], [f"before: {_line(old)}", f"now:    {_line(new)}"])


@answers
def forget(
    folder: Folder,
    numbers: Annotated[
        list[int] | None,
        typer.Argument(metavar="[NUMBER]...", help="Numbers of entries; `solera device history` lists them."),
    ] = None,
    item: Annotated[
        str | None, typer.Option(help="Delete this item (id or title) for one --user, or for all users.")
    ] = None,
    user: Annotated[
        str | None,
        typer.Option(help="Whose entries; without numbers and --item, everything about this user."),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Delete every user and the record of what was sent.")
    ] = False,
    yes: Yes = False,
    *,
    json: bool,
) -> Answer:
    """Delete entries, items or users, and overwrite the deleted data on disk. It asks first.

    Example: solera device forget me 12 13

    Example: solera device forget me --item "The Matrix (1999)"

    Example: solera device forget me --all --yes
    """
    from solera.core.errors import ConfigError, DeviceError
    from solera.device.device import ME, Device

    if everything == (item is not None or user is not None or bool(numbers)) or (
        numbers and item is not None
    ):
        raise ConfigError(
            "choose what to delete", "give numbers of entries, or --item, --user or both; or --all alone"
        )
    device = Device.open(folder)
    sent = len(device.outbox())
    if numbers:
        return _forget_entries(device, numbers, user or ME, sent, yes=yes, json=json)
    users = {each["name"]: each["interactions"] for each in device.status()["users"]}
    if user is not None and user not in users:
        raise DeviceError(f"this device has no user {user!r}", f"users: {', '.join(users) or 'none'}")
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
    return _deleted(device.forget(item=id_, user=user), sent)


def _forget_entries(
    device: Device, numbers: list[int], user: str, sent: int, *, yes: bool, json: bool
) -> Answer:
    lines = [_line(device.entries.entry(user, number)) for number in dict.fromkeys(numbers)]
    what = lines[0] if len(lines) == 1 else f"{len(lines)} entries ({'; '.join(lines)})"
    confirm(what, yes=yes, json=json)
    return _deleted(len(device.entries.remove(user, numbers)), sent)


def _deleted(count: int, sent: int) -> Answer:
    said = [f"{counted(count, 'entry', 'entries')} deleted"]
    if sent:
        times = "once" if sent == 1 else f"{sent:,} times"
        said.append(f"what left the device before ({times}) cannot be called back")
    return Answer({"forgotten": count, "sent_before": sent}, said)


def _as_json(entries: list[Interaction]) -> list[dict[str, Any]]:
    return [each._asdict() | {"date": each.date} for each in entries]


def _line(entry: Interaction) -> str:
    seen = "" if entry.counts else ", seen only"
    return f"{entry.title} at {entry.date or 'an unknown time'}, from {entry.source}{seen}"


def _seconds(text: str) -> int | None:
    from solera.core.errors import ConfigError
    from solera.device.importers.entry import seconds

    try:
        return seconds(text)
    except ValueError:
        hint = "write 2024-05-01, or 2024-05-01T20:15"
        raise ConfigError(f"{text!r} is not a date or time", hint) from None


def _export(entries: list[Interaction], path: Path) -> None:
    from solera.core.errors import ConfigError
    from solera.core.files import write_atomically
    from solera.device.history import as_csv, as_json

    forms = {".csv": as_csv, ".json": as_json}
    if path.suffix not in forms:
        raise ConfigError(f"{path} is neither a .csv nor a .json file", "give -o history.csv")
    try:
        write_atomically(path, forms[path.suffix](entries))
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}", "give another -o") from None
