"""Shows "For you" in Kodi: films that a Solera device recommends, each with its reasons. Runs in Kodi."""

from __future__ import annotations

import json
import ssl
import sys
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl
from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

import xbmc
import xbmcaddon
import xbmcgui
import xbmcplugin

COUNT = 50
KINDS = ("tmdb", "imdb", "tvdb")


def main(base: str, handle: int, query: dict[str, str]) -> None:
    """List the films of the library, or those that are not in it."""
    others = "others" in query
    xbmcplugin.setContent(handle, "movies")
    xbmcplugin.addSortMethod(handle, xbmcplugin.SORT_METHOD_UNSORTED)
    try:
        found = ask(f"/api/v1/recommendations?count={COUNT}&listed={'false' if others else 'true'}")
    except (OSError, ValueError) as error:
        xbmcgui.Dialog().notification("Solera", f"The device does not answer: {error}")
        xbmcplugin.endOfDirectory(handle, succeeded=False)
        return
    library = films_here()
    for each in found["recommendations"]:
        here = next((library[key] for key in keys(each["item"]["ids"]) if key in library), None)
        if (here is None) == others:
            xbmcplugin.addDirectoryItem(
                handle, here["file"] if here else base, listed(each, here), isFolder=False
            )
    if not others:
        more = xbmcgui.ListItem("Not in your library")
        xbmcplugin.addDirectoryItem(handle, f"{base}?others=1", more, isFolder=True)
    xbmcplugin.endOfDirectory(handle, cacheToDisc=False)


def ask(path: str) -> Any:
    """What the device answers. Its own certificate, if it has one, came with this add-on."""
    addon = xbmcaddon.Addon()
    pinned = Path(addon.getAddonInfo("path"), "resources", "device.pem")
    context = ssl.create_default_context(cafile=str(pinned) if pinned.exists() else None)
    context.check_hostname = not pinned.exists()
    opener = build_opener(ProxyHandler({}), HTTPSHandler(context=context))
    request = Request(addon.getSetting("url").rstrip("/") + path)
    request.add_header("Authorization", f"Bearer {addon.getSetting('token')}")
    with opener.open(request, timeout=20) as answer:
        return json.load(answer)


def films_here() -> dict[tuple[str, str], Any]:
    """Films of Kodi's library by each of their ids."""
    call = {"jsonrpc": "2.0", "id": 1, "method": "VideoLibrary.GetMovies"}
    asked = call | {"params": {"properties": ["file", "uniqueid", "art"]}}
    films = json.loads(xbmc.executeJSONRPC(json.dumps(asked)))["result"].get("movies", [])
    return {key: film for film in films for key in keys(film["uniqueid"])}


def keys(ids: dict[str, str]) -> list[tuple[str, str]]:
    """Ids of a film in a form that can be compared."""
    plain = {kind.lower(): str(value).lower() for kind, value in ids.items()}
    plain["imdb"] = plain.get("imdb", "").removeprefix("tt").lstrip("0")
    return [(kind, plain[kind]) for kind in KINDS if plain.get(kind)]


def listed(each: dict[str, Any], here: dict[str, Any] | None) -> Any:
    """A film as Kodi shows it; the plot says why it is there."""
    item, film = xbmcgui.ListItem(each["item"]["title"], offscreen=True), each["item"]
    item.setArt(here["art"] if here else {"icon": "DefaultVideo.png"})
    item.setProperty("IsPlayable", "true" if here else "false")
    tag = item.getVideoInfoTag()
    tag.setTitle(film["title"])
    tag.setMediaType("movie")
    tag.setYear(film["year"] or 0)
    tag.setGenres(film["genres"])
    tag.setPlot(because(each))
    return item


def because(each: dict[str, Any]) -> str:
    """The films of the history that speak for it, with their shares of the score."""
    if not each["reasons"] or each["score"] <= 0:
        return "It fits your history."
    shares = ((one["item"]["title"], one["part"] / each["score"]) for one in each["reasons"])
    return "Because of " + ", ".join(f"{title} ({share:.0%})" for title, share in shares)


main(sys.argv[0], int(sys.argv[1]), dict(parse_qsl(sys.argv[2].lstrip("?"))))
