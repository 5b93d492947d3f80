"""solera device connect and addon: histories and libraries of media servers in the home."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from solera.cli.folder import Folder, User
from solera.cli.output import Answer, Line, Table, answers

if TYPE_CHECKING:
    from solera.device.connectors import Synced

Kind = Literal["kodi", "jellyfin", "mpd"]
_COLUMNS = ("server", "user", "new entries", "not in the catalogue", "owned", "")


@answers
def connect(
    folder: Folder,
    kind: Annotated[
        Kind | None, typer.Argument(help="kodi, jellyfin or mpd; none: list the connections.")
    ] = None,
    url: Annotated[
        str,
        typer.Option(help="Its address: http://192.168.1.2:8080, mpd://192.168.1.2. It must be in the home."),
    ] = "",
    key: Annotated[str, typer.Option(help="API key of Jellyfin, or the password of Kodi or MPD.")] = "",
    name: Annotated[str, typer.Option(help="Name of the person there, if it is another than --user.")] = "",
    remove: Annotated[
        bool, typer.Option("--remove", help="Forget the connection. The history stays.")
    ] = False,
    refresh: Annotated[
        bool, typer.Option("--refresh", help="Without a server: ask all that are connected now.")
    ] = False,
    user: User = "me",
) -> Answer:
    """Read what a person watched or heard, and owns, from a media server at home, now and from then on.

    `solera device open` asks again every ten minutes, and MPD every 20 seconds; --refresh asks at once.
    Nothing is sent to the server but questions, and to Jellyfin a playlist "For you".

    Example: solera device connect me kodi --url http://192.168.1.2:8080

    Example: solera device connect me jellyfin --url http://192.168.1.2:8096 --key KEY --user anna

    Example: solera device connect me --refresh
    """
    from solera.core.errors import ConfigError
    from solera.device import connectors
    from solera.device.device import Device

    device = Device.open(folder)
    if refresh:
        if kind is not None:
            raise ConfigError("--refresh asks all connected servers", f"leave out {kind}")
        return _answer(connectors.sync_due(device, {}))
    if kind is not None and not remove:
        if not url:
            raise ConfigError(
                "the address is missing", f"solera device connect {folder} {kind} --url ADDRESS"
            )
        found = connectors.Connection(kind=kind, url=url, user=user, key=key, name=name)
        return _answer([connectors.connect(device, found)], f"next: solera device open {folder}")
    if kind is not None:
        connectors.disconnect(device, kind, user)
    held = [each.model_dump(exclude={"key"}) for each in connectors.listed(device)]
    rows = [(each["kind"], each["url"], each["user"]) for each in held]
    return Answer(
        held, [Table("Connections", ("server", "address", "user"), rows) if rows else "no connections"]
    )


@answers
def addon(
    folder: Folder,
    output: Annotated[Path, typer.Option("-o", "--output", help="Zip to write.")],
    url: Annotated[
        str, typer.Option(help="Address of the device as Kodi reaches it.")
    ] = "http://127.0.0.1:8470",
    user: User = "me",
) -> Answer:
    """Write the add-on that shows "For you" in Kodi, with a token of its own. Install it from the zip file.

    Example: solera device addon me -o plugin.video.solera.zip
    """
    from solera.device.addon import write_addon
    from solera.device.device import Device

    write_addon(Device.open(folder), output, url, user)
    said = Line(
        f"next: solera device open {folder} --port 8470; in Kodi: Add-ons, Install from zip file", "dim"
    )
    return Answer({"addon": str(output), "url": url, "user": user}, [f"{output}: for {user}, at {url}", said])


def _answer(told: list[Synced], following: str = "") -> Answer:
    rows = [(each.source, each.user, each.added, each.unknown, each.owned, each.error) for each in told]
    said: list[Table | Line | str] = [Table("Asked", _COLUMNS, rows) if rows else "no connections"]
    said += [Line(following, "dim")] if following else []
    return Answer([each._asdict() for each in told], said, any(each.error for each in told))
