"""solera device import and match: a history from another service, and titles that are written differently."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from solera.cli.folder import Folder, User
from solera.cli.options import parse_columns
from solera.cli.output import Json, err, out, print_json, table
from solera.core.text import counted

if TYPE_CHECKING:
    from solera.device.bundle import Item
    from solera.device.importers import Report, Unmatched

Format = Literal["letterboxd", "listenbrainz", "jellyfin", "csv"]
_LISTED = 20  # titles and files that are shown


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
    user: User = "me",
    json: Json = False,
) -> None:
    """Import a history from another service, and say what became of every row.

    On a terminal it asks about titles that are similar to one in the catalogue. Answers are remembered.

    Example: solera device import me letterboxd letterboxd-ann-2024-05-01.zip

    Example: solera device import me csv films.csv --columns title=Film,year=Made,time=Seen
    """
    from solera.device.device import Device
    from solera.device.importers import as_json, import_file, near_of_year

    asks = not json and sys.stdin.isatty() and sys.stdout.isatty()
    report = import_file(
        Device.open(folder),
        format_,
        file,
        parse_columns(columns) or {},
        user,
        like_from=like_from,
        accept=near_of_year if accept_near else _ask if asks else None,
        as_list=as_list,
    )
    if json:
        print_json(as_json(report))
    else:
        _show(report)
        _next(report, folder)
    if not report.matched:
        raise typer.Exit(code=2)


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


def _show(report: Report) -> None:
    if report.used:
        used = ", ".join(f"{name} ({count:,})" for name, count in report.used.items())
        out.print(f"rows used: {used}", highlight=False, markup=False, soft_wrap=True)
    if report.unused:
        more = "" if len(report.unused) <= _LISTED else f" and {len(report.unused) - _LISTED:,} more"
        unused = ", ".join(report.unused[:_LISTED])
        out.print(f"not used: {unused}{more}", highlight=False, markup=False, soft_wrap=True)
    rows: list[tuple[str, Any]] = [
        ("added", report.added),
        ("known already", report.known),
        ("more than once in the file", report.repeated),
        ("not in the catalogue", report.unknown),
        *report.left_out.items(),
    ]
    total = report.entries + sum(report.left_out.values())
    table(f"What became of {counted(total, 'row', 'rows')}", ("", "rows"), _some(rows))
    for fault in report.faults:
        out.print(f"bad row: {fault}", highlight=False, markup=False, soft_wrap=True)
    for title, item in report.accepted.items():
        out.print(f"matched: {title} is {item}", highlight=False, markup=False, soft_wrap=True)
    if report.matched:
        out.print(f"{counted(report.items, 'item', 'items')} in the catalogue", highlight=False)
    if report.rated:
        seen = counted(report.seen_only, "item is", "items are")
        line = f"a rating of {report.like_from:g} or more counts as a like (--like-from); {seen} seen only"
        out.print(line, highlight=False, soft_wrap=True)
    _show_unmatched(report)


def _some(rows: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    return [row for row in rows if row[1]] or rows[:1]


def _show_unmatched(report: Report) -> None:
    if not report.unmatched:
        return
    first = sorted(report.unmatched, key=lambda each: not each.near)[:_LISTED]
    table(
        f"Not in the catalogue: {counted(len(report.unmatched), 'title', 'titles')}",
        ("title", "year", "rows", "perhaps"),
        (
            (
                each.title,
                "" if each.year is None else str(each.year),
                each.times,
                "; ".join(f"{item.title} (item {item.id})" for item in each.near),
            )
            for each in first
        ),
    )
    if len(report.unmatched) > _LISTED:
        given = f"the first {len(report.unmatched):,}" if report.unlisted else "all"
        out.print(f"{_LISTED} of them; --json gives {given}", style="dim", highlight=False)
    if report.unlisted:
        out.print(f"{report.unlisted:,} more entries are not in the catalogue either", highlight=False)


def _next(report: Report, folder: Path) -> None:
    near = next((each for each in report.unmatched if each.near), None)
    if near:
        command = f'solera device match {folder} "{_named(near)}" {near.near[0].id}'
        hint = f"if that one is meant: {command}, then import again; or import with --accept-near"
        out.print(hint, style="dim", highlight=False, markup=False, soft_wrap=True)
    if report.matched:
        hint = f"next: solera device recommend {folder} -k 10 --why"
        out.print(hint, style="dim", highlight=False, soft_wrap=True)
        return
    err.print("[bold red]error:[/] nothing was imported: no title is in the catalogue", highlight=False)
    err.print(
        "[bold]next:[/] check that the bundle is for such items: solera device status shows it",
        highlight=False,
    )


def _named(each: Unmatched) -> str:
    return each.title if each.year is None else f"{each.title} ({each.year})"


def match(
    folder: Folder,
    title: Annotated[
        str | None,
        typer.Argument(help="A title as the other service writes it, with its year if it has one."),
    ] = None,
    item: Annotated[str | None, typer.Argument(help="The item that is meant: an id or a title.")] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Forget the match of this title.")] = False,
    user: User = "me",
    json: Json = False,
) -> None:
    """Say which item a title means, for later imports; without a title, list what was said.

    Example: solera device match me "Empire Strikes Back (1980)" "Empire Strikes Back, The (1980)"
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
    if json:
        print_json(listed)
    elif listed:
        rows = ((each["title"], each["year"], each["item"], each["meant"]) for each in listed)
        table(f"Titles that {user} has matched", ("title", "year", "item", "meant"), _years(rows))
        if item is not None:
            out.print("next: import the file again", style="dim", highlight=False)
    else:
        out.print("no titles have been matched", highlight=False)


def _years(rows: Any) -> list[tuple[Any, ...]]:
    return [(title, "any" if year is None else str(year), *rest) for title, year, *rest in rows]
