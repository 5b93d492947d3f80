"""solera device open, token and watch: the page of a device, other programs, and files that grow."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from solera.cli.folder import Folder, User
from solera.cli.options import parse_columns
from solera.cli.output import Json, err, help_if_alone, out, print_json, table
from solera.core.text import counted

token = typer.Typer(
    help="Let other programs on this machine use the service of `solera device open`.",
    invoke_without_command=True,
)
token.callback()(help_if_alone)


def open_(
    folder: Folder,
    port: Annotated[
        int, typer.Option(help="Port on 127.0.0.1; 0 for any that is free.", min=0, max=65535)
    ] = 0,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the link.")] = False,
    user: User = "me",
    json: Json = False,
) -> None:
    """Show the device in your browser: recommendations, history, what has left it, and its model.

    The page comes from this machine (127.0.0.1) and needs no network. It ends with Ctrl+C.

    Example: solera device open me

    Example: solera device open me --port 8470 --no-browser
    """
    from solera.service.serve import serve

    def ready(link: str) -> None:
        if json:
            print_json({"link": link})
            return
        out.print(link, highlight=False, markup=False, soft_wrap=True)
        out.print("Whoever has this link can use the device. Ctrl+C ends it.", style="dim", highlight=False)

    serve(folder, user, port, browser=not no_browser, on_ready=ready)


def watch(
    folder: Folder,
    file: Annotated[
        Path, typer.Argument(help="Jellyfin's playback_reporting.db or backup, or listens of ListenBrainz.")
    ],
    columns: Annotated[
        str | None, typer.Option(help="jellyfin: user=…, if the file has plays of several users.")
    ] = None,
    every: Annotated[float, typer.Option(help="Seconds between two looks at the file.", min=0.1)] = 10.0,
    user: User = "me",
    json: Json = False,
) -> None:
    """Import new entries of a file as another program adds them, until Ctrl+C.

    Example: solera device watch me /var/lib/jellyfin/data/playback_reporting.db
    """
    from solera.device.device import Device
    from solera.device.importers import as_json
    from solera.device.watch import watch as follow

    device = Device.open(folder)
    try:
        for found in follow(device, file, parse_columns(columns) or {}, user, every):
            if isinstance(found, Exception):
                err.print(f"{found.message}; {found.hint}", highlight=False, markup=False, soft_wrap=True)
            elif json:
                print_json(as_json(found))
            else:
                now = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}"
                entries = counted(found.added, "entry", "entries")
                said = (
                    f"{now}  {entries} added, {found.known:,} known, {found.unknown:,} not in the catalogue"
                )
                out.print(said, highlight=False, markup=False)
    except KeyboardInterrupt:
        pass


@token.command("create")
def token_create(
    folder: Folder,
    name: Annotated[str, typer.Argument(help="What the token is for: the name of a program.")],
    scope: Annotated[
        list[str],
        typer.Option(help="read: get recommendations; add: add interactions. May be given twice."),
    ],
    user: User = "me",
    json: Json = False,
) -> None:
    """Create a token for a program, and show it this once.

    Example: solera device token create me jellyfin-plugin --scope add
    """
    from solera.device.device import Device
    from solera.device.tokens import Tokens

    secret = Tokens(Device.open(folder).store).create(name, scope, user)
    if json:
        print_json({"name": name, "scopes": scope, "user": user, "token": secret})
        return
    out.print(secret, highlight=False, markup=False, soft_wrap=True)
    out.print("It is shown this once: the device keeps only its digest.", style="dim", highlight=False)


@token.command("list")
def token_list(folder: Folder, json: Json = False) -> None:
    """List the tokens, and when each was last used.

    Example: solera device token list me
    """
    from solera.device.device import Device
    from solera.device.tokens import Tokens

    found = Tokens(Device.open(folder).store).listed()
    if json:
        print_json([each._asdict() for each in found])
    elif found:
        rows = (
            (each.number, each.name, each.user, ", ".join(each.scopes), _date(each.created), _date(each.used))
            for each in found
        )
        table("Tokens", ("number", "name", "user", "scopes", "created", "last used"), rows)
    else:
        out.print("there are no tokens", highlight=False)


@token.command("revoke")
def token_revoke(
    folder: Folder,
    number: Annotated[int, typer.Argument(help="Number of the token; `token list` shows them.")],
    json: Json = False,
) -> None:
    """Revoke a token: the program that has it is refused from then on.

    Example: solera device token revoke me 1
    """
    from solera.device.device import Device
    from solera.device.tokens import Tokens

    gone = Tokens(Device.open(folder).store).revoke(number)
    if json:
        print_json(gone._asdict())
        return
    out.print(f"revoked: {gone.name}", highlight=False, markup=False)


def _date(time: int | None) -> str:
    return "never" if time is None else f"{datetime.fromtimestamp(time, UTC):%Y-%m-%d %H:%M}"
