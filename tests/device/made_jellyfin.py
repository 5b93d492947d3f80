"""A server with the part of Jellyfin's API that is used, as its OpenAPI description of version 12 has it.

It refuses paths, parameters and fields that the description does not have. A real Jellyfin was not tried.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

KEY = "5f0c"
DESCRIBED = {  # parameters of GET, and fields of the body of POST
    ("GET", "/Users"): {"isHidden", "isDisabled"},
    ("GET", "/Items"): {
        "userId", "recursive", "includeItemTypes", "fields", "enableUserData", "startIndex", "limit",
        "isPlayed", "searchTerm", "sortBy", "ids",
    },
    ("POST", "/Playlists"): {"Name", "Ids", "UserId", "MediaType", "Users", "IsPublic"},
    ("POST", "/Playlists/{playlistId}"): {"Name", "Ids", "Users", "IsPublic"},
}  # fmt: skip
FIELDS = {"ProviderIds"}  # of the enumeration ItemFields


def guid(number: int) -> str:
    return f"{number:032x}"


class Jellyfin:
    """Users, films and playlists."""

    def __init__(self, films: list[dict[str, Any]]) -> None:
        self.users = {"Anna": guid(1), "Ben": guid(2)}
        self.films = [{"Id": guid(100 + n), "Type": "Movie", **film} for n, film in enumerate(films)]
        self.data: dict[tuple[str, str], dict[str, Any]] = {}
        self.lists: dict[str, dict[str, Any]] = {}
        self.url = ""

    def watched(self, user: str, film: int, when: str, **more: Any) -> None:
        told = {"Played": True, "PlayCount": 1, "IsFavorite": False, "LastPlayedDate": when}
        self.data[self.users[user], self.films[film]["Id"]] = told | more

    def answer(self, verb: str, path: str, query: dict[str, str], body: dict[str, Any]) -> tuple[int, Any]:
        form = "/Playlists/{playlistId}" if path.startswith("/Playlists/") else path
        known = DESCRIBED.get((verb, form))
        if known is None or not {*query, *body} <= known:
            return 400, None
        if form == "/Users":
            return 200, [{"Name": name, "Id": id_} for name, id_ in self.users.items()]
        if form == "/Items":
            return 200, self._items(query)
        if form == "/Playlists":
            id_ = guid(900 + len(self.lists))
            self.lists[id_] = body
            return 200, {"Id": id_}
        if (id_ := path.rpartition("/")[2]) not in self.lists:
            return 404, None
        self.lists[id_] |= body
        return 204, None

    def _items(self, query: dict[str, str]) -> Any:
        types, user = query["includeItemTypes"].split(","), query["userId"]
        assert set(query.get("fields", "ProviderIds").split(",")) <= FIELDS
        held = [film for film in self.films if film["Type"] in types]
        if "Playlist" in types:
            held = [{"Id": id_, "Type": "Playlist", "Name": each["Name"]} for id_, each in self.lists.items()
                    if each["UserId"] == user]  # fmt: skip
        held = [each | {"UserData": self.data.get((user, each["Id"]), {"Played": False})} for each in held]
        start, count = int(query.get("startIndex", 0)), min(int(query.get("limit", 10**6)), 7)
        return {"Items": held[start : start + count], "TotalRecordCount": len(held), "StartIndex": start}


@contextmanager
def serving(jellyfin: Jellyfin) -> Iterator[Jellyfin]:
    """The server, on a port of its own."""

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            parts = urlsplit(self.path)
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else {}
            status, said = 401, None
            if self.headers["Authorization"] == f'MediaBrowser Token="{KEY}"':
                status, said = jellyfin.answer(self.command, parts.path, dict(parse_qsl(parts.query)), body)
            content = b"" if said is None else json.dumps(said).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = _answer  # noqa: N815 - as the library calls them

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    jellyfin.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield jellyfin
    finally:
        server.shutdown()
        server.server_close()
