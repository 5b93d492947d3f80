"""solera device add, history, correct and remove: the entries of a history, one by one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from solera.cli.folder import Folder, User, Yes, confirm
from solera.cli.output import Json, out, print_json, table
from solera.core.text import counted

if TYPE_CHECKING:
    from solera.device.history import Interaction

Number = Annotated[int, typer.Argument(help="Number of the entry; `solera device history` lists them.")]


def add(
    folder: Folder,
    item: Annotated[str, typer.Argument(help="An item's id, or its title.")],
    time: Annotated[
        str | None, typer.Option(help="Time: 2024-05-01, 2024-05-01T20:15 or Unix seconds (default: now).")
    ] = None,
    user: User = "me",
    json: Json = False,
) -> None:
    """Add an item to the history.

    Example: solera device add me "The Matrix (1999)" --time 2024-05-01
    """
    from solera.device.device import Device

    when = None if time is None else _seconds(time)
    device = Device.open(folder)
    found = device.find(item, user)
    new = device.add(found.id, time=when, user=user)
    if json:
        print_json({"item": found.id, "title": found.title, "user": user, "added": new})
        return
    said = "added" if new else "known already"
    out.print(f"{said}: {found.title} (item {found.id})", highlight=False, markup=False)


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
    json: Json = False,
) -> None:
    """List or search the history, newest first, or export it to a file.

    Example: solera device history me --search matrix

    Example: solera device history me -o history.csv
    """
    from solera.device.device import Device

    entries = Device.open(folder).entries.entries(user, search or "")
    if output is not None:
        _export(entries, output)
        if not json:
            out.print(f"{output}: {counted(len(entries), 'entry', 'entries')}", highlight=False, markup=False)
            return
    if json:
        print_json([each._asdict() | {"date": each.date} for each in entries])
        return
    if not entries:
        what = f"no entry of {user} contains {search!r}" if search else f"{user} has no history yet"
        out.print(what, highlight=False, markup=False)
        return
    shown = entries[::-1][: limit or len(entries)]
    rows = (
        (each.number, each.date or "unknown", each.title, each.source, "" if each.counts else "seen only")
        for each in shown
    )
    table(f"History of {user}", ("entry", "time (UTC)", "title", "from", ""), rows)
    if len(shown) < len(entries):
        note = f"the newest {len(shown):,} of {len(entries):,} entries; -n 0 shows all"
        out.print(note, style="dim", highlight=False)


def correct(
    folder: Folder,
    number: Number,
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
    json: Json = False,
) -> None:
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
    if json:
        print_json(new._asdict() | {"date": new.date})
        return
    out.print(f"before: {_line(old)}", highlight=False, markup=False)
    out.print(f"now:    {_line(new)}", highlight=False, markup=False)


def remove(
    folder: Folder,
    numbers: Annotated[
        list[int],
        typer.Argument(
            metavar="NUMBER...", help="Numbers of the entries; `solera device history` lists them."
        ),
    ],
    user: User = "me",
    yes: Yes = False,
    json: Json = False,
) -> None:
    """Remove entries from the history, and overwrite them on disk. It asks first.

    Example: solera device remove me 12 13
    """
    from solera.device.device import Device

    entries = Device.open(folder).entries
    lines = [_line(entries.entry(user, number)) for number in dict.fromkeys(numbers)]
    what = lines[0] if len(lines) == 1 else f"{len(lines)} entries ({'; '.join(lines)})"
    confirm(what, yes=yes, json=json)
    gone = entries.remove(user, numbers)
    if json:
        print_json([each._asdict() | {"date": each.date} for each in gone])
        return
    out.print(f"{counted(len(gone), 'entry', 'entries')} deleted", highlight=False)


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
