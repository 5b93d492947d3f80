"""solera device import and match: a history from another service, and titles that are written differently."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from solera.cli.folder import Folder, User
from solera.cli.options import parse_columns
from solera.cli.output import Answer, Line, Table, answers, err
from solera.core.text import counted

if TYPE_CHECKING:
    from solera.device.bundle import Item
    from solera.device.device import Device
    from solera.device.importers import Report, Unmatched

Format = Literal["letterboxd", "listenbrainz", "jellyfin", "csv"]
_LISTED = 20  # titles and files that are shown


@answers
def import_(
    folder: Folder,
    format_: Annotated[
        Format, typer.Argument(metavar="FORMAT", help="letterboxd, listenbrainz, jellyfin or csv.")
    ],
    file: Annotated[Path, typer.Argument(help="The exported file, as it was handed out.")],
    columns: Annotated[
        str | None,
        typer.Option(help="csv: title=…,year=…,time=…,rating=… or item=…,time=…; jellyfin: user=…"),
    ] = None,
    like_from: Annotated[
        float | None,
        typer.Option(
            help="Lowest rating that counts as a like (3.5 of 5). Films with lower ones are seen only:"
            " not recommended, and not used for recommendations.",
            min=0,
        ),
    ] = None,
    accept_near: Annotated[
        bool,
        typer.Option(
            "--accept-near",
            help="Take the nearest title of the same year, give or take one, as the one meant.",
        ),
    ] = False,
    as_list: Annotated[
        bool,
        typer.Option(
            "--as-list",
            help="The file lists items to choose from: a watchlist or a library (recommend --listed).",
        ),
    ] = False,
    watch: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Look at the file this often and import new entries, until Ctrl+C: a database of jellyfin,"
            " or listens of listenbrainz.",
            min=0.1,
        ),
    ] = None,
    user: User = "me",
    *,
    json: bool,
) -> Answer | None:
    """Import a history from another service, and say what became of every row.

    On a terminal it asks about titles that are similar to one in the catalogue. Answers are remembered.

    Example: solera device import me letterboxd letterboxd-ann-2024-05-01.zip

    Example: solera device import me csv films.csv --columns title=Film,year=Made,time=Seen

    Example: solera device import me jellyfin playback_reporting.db --watch 10
    """
    from solera.core.errors import ConfigError
    from solera.device.device import Device
    from solera.device.importers import as_json, import_file, near_of_year

    named = parse_columns(columns) or {}
    if watch is not None:
        if format_ not in {"jellyfin", "listenbrainz"} or like_from or accept_near or as_list:
            raise ConfigError(
                "--watch takes listens or plays as they are", "give jellyfin or listenbrainz, and no option"
            )
        _follow(Device.open(folder), file, named, user, watch, json=json)
        return None
    asks = not json and sys.stdin.isatty() and sys.stdout.isatty()
    report = import_file(
        Device.open(folder),
        format_,
        file,
        named,
        user,
        like_from=like_from,
        accept=near_of_year if accept_near else _ask if asks else None,
        as_list=as_list,
    )
    answer = Answer(as_json(report), [*_shown(report), *_next(report, folder)])
    if report.matched:
        return answer
    answer.print(json=json)
    if not json:
        err.print("[bold red]error:[/] nothing was imported: no title is in the catalogue", highlight=False)
        err.print(
            "[bold]next:[/] check that the bundle is for such items: solera device status shows it",
            highlight=False,
        )
    raise typer.Exit(code=2)


def _follow(
    device: Device, file: Path, columns: dict[str, str], user: str, every: float, *, json: bool
) -> None:
    """Import new entries as another program adds them, and say so each time."""
    from solera.device.importers import as_json
    from solera.device.watch import watch

    try:
        for found in watch(device, file, columns, user, every):
            if isinstance(found, Exception):
                err.print(f"{found.message}; {found.hint}", highlight=False, markup=False, soft_wrap=True)
                continue
            said = (
                f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}  {counted(found.added, 'entry', 'entries')} added,"
                f" {found.known:,} known, {found.unknown:,} not in the catalogue"
            )
            Answer(as_json(found), [said]).print(json=json)
    except KeyboardInterrupt:
        pass


def _ask(unmatched: list[Unmatched]) -> dict[tuple[str, int | None], Item]:
    """Ask which of the near items was meant, title by title."""
    near = [each for each in unmatched if each.near]
    titles = counted(len(near), "title has", "titles have")
    if not near or not typer.confirm(f"{titles} a similar one in the catalogue. Look at them now?", err=True):
        return {}
    chosen = {}
    for each in near:
        err.print(_named(each), style="bold", highlight=False, markup=False)
        for number, item in enumerate(each.near, start=1):
            err.print(f"  {number}  {item.title}", highlight=False, markup=False)
        answer = typer.prompt("Number, or Enter for none of these", default="", show_default=False, err=True)
        if answer.isdigit() and 1 <= int(answer) <= len(each.near):
            chosen[each.title, each.year] = each.near[int(answer) - 1]
    return chosen


def _shown(report: Report) -> list[Table | Line | str]:
    said: list[Table | Line | str] = []
    if report.used:
        said.append(Line(f"rows used: {', '.join(f'{name} ({n:,})' for name, n in report.used.items())}"))
    if report.unused:
        more = "" if len(report.unused) <= _LISTED else f" and {len(report.unused) - _LISTED:,} more"
        said.append(Line(f"not used: {', '.join(report.unused[:_LISTED])}{more}"))
    rows: list[tuple[str, Any]] = [
        ("added", report.added),
        ("known already", report.known),
        ("more than once in the file", report.repeated),
        ("not in the catalogue", report.unknown),
        *report.left_out.items(),
    ]
    total = report.entries + sum(report.left_out.values())
    some = [row for row in rows if row[1]] or rows[:1]
    said.append(Table(f"What became of {counted(total, 'row', 'rows')}", ("", "rows"), some))
    said += [Line(f"bad row: {fault}") for fault in report.faults]
    said += [Line(f"matched: {title} is {item}") for title, item in report.accepted.items()]
    if report.matched:
        said.append(
            f"{counted(report.items, 'item', 'items')} in the catalogue:"
            f" {report.by_id:,} rows by id, {report.matched - report.by_id:,} by title and year"
        )
    if report.rated:
        seen = counted(report.seen_only, "item is", "items are")
        said.append(
            Line(f"a rating of {report.like_from:g} or more counts as a like (--like-from); {seen} seen only")
        )
    return said + _unmatched(report)


def _unmatched(report: Report) -> list[Table | Line | str]:
    if not report.unmatched:
        return []
    first = sorted(report.unmatched, key=lambda each: not each.near)[:_LISTED]
    said: list[Table | Line | str] = [
        Table(
            f"Not in the catalogue: {counted(len(report.unmatched), 'title', 'titles')}",
            ("title", "year", "rows", "perhaps"),
            [
                (
                    each.title,
                    "" if each.year is None else str(each.year),
                    each.times,
                    "; ".join(f"{item.title} (item {item.id})" for item in each.near),
                )
                for each in first
            ],
        )
    ]
    if len(report.unmatched) > _LISTED:
        given = f"the first {len(report.unmatched):,}" if report.unlisted else "all"
        said.append(Line(f"{_LISTED} of them; --json gives {given}", "dim"))
    if report.unlisted:
        said.append(f"{report.unlisted:,} more entries are not in the catalogue either")
    return said


def _next(report: Report, folder: Path) -> Iterator[Line]:
    near = next((each for each in report.unmatched if each.near), None)
    if near:
        command = f'solera device match {folder} "{_named(near)}" {near.near[0].id}'
        hint = f"if that one is meant: {command}, then import again; or import with --accept-near"
        yield Line(hint, "dim")
    if report.matched:
        yield Line(f"next: solera device recommend {folder} -k 10 --why", "dim")


def _named(each: Unmatched) -> str:
    return each.title if each.year is None else f"{each.title} ({each.year})"


@answers
def match(
    folder: Folder,
    title: Annotated[
        str | None,
        typer.Argument(help="A title as the other service writes it, with its year if it has one."),
    ] = None,
    item: Annotated[str | None, typer.Argument(help="The item that is meant: an id or a title.")] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Forget the match of this title.")] = False,
    user: User = "me",
) -> Answer:
    """Say which item a title means, for later imports; without a title, list what was said.

    Example: solera device match me "Empire Strikes Back (1980)" "The Empire Strikes Back (1980)"
    """
    from solera.core.errors import ConfigError, DeviceError
    from solera.device.aliases import Aliases
    from solera.device.device import Device

    device = Device.open(folder)
    aliases = Aliases(device.store, user)
    if title is not None and (item is None) != remove:
        raise ConfigError("a match is a title and an item", "give both, or a title and --remove")
    if title is None and (item is not None or remove):
        raise ConfigError("the title is missing", f'solera device match {folder} "TITLE (YEAR)" --remove')
    if title is not None and item is not None:
        aliases.add(title, None, device.catalogue.find(item).id)
    elif title is not None and not aliases.remove(title):
        raise DeviceError(f"no match of {title!r} is known", f"solera device match {folder} lists them")
    listed = [each._asdict() | {"meant": device.catalogue.title(each.item)} for each in aliases.listed()]
    rows = [
        (each["title"], "any" if each["year"] is None else str(each["year"]), each["item"], each["meant"])
        for each in listed
    ]
    said: list[Table | Line | str] = ["no titles have been matched"]
    if listed:
        said = [Table(f"Titles that {user} has matched", ("title", "year", "item", "meant"), rows)]
        said += [Line("next: import the file again", "dim")] if item is not None else []
    return Answer(listed, said)
