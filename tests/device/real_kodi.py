"""A real Kodi without a screen, with a library of its own from small NFO files."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import time
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

from solera.device.addon import ID
from solera.device.bundle import Item

PROGRAMS = ("kodi", "xvfb-run", "Xvfb", "xauth")
MISSING = [name for name in PROGRAMS if shutil.which(name) is None]
_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}  # its Python is that of the system
_LONGEST = 300  # seconds that Kodi may live
_STEP = 90  # seconds in which it must have done something


class Kodi(NamedTuple):
    """One that runs."""

    home: Path
    port: int
    display: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(self, method: str, **params: Any) -> Any:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        call = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        with closing(connection):
            connection.request("POST", "/jsonrpc", call, {"Content-Type": "application/json"})
            answer = json.loads(connection.getresponse().read())
        assert "result" in answer, answer
        return answer["result"]

    def films(self) -> dict[str, dict[str, Any]]:
        """The library by title."""
        found = self.ask("VideoLibrary.GetMovies", properties=["title", "file", "playcount"])
        return {each["title"]: each for each in found.get("movies", [])}

    def watch(self, title: str, when: str) -> None:
        """Mark a film as watched, as the person does with W."""
        number = self.films()[title]["movieid"]
        self.ask("VideoLibrary.SetMovieDetails", movieid=number, playcount=1, lastplayed=when)

    def shown(self, place: str = "") -> list[dict[str, Any]]:
        """What the add-on lists."""
        asked = {"directory": f"plugin://{ID}/{place}", "media": "video", "properties": ["plot"]}
        return list(self.ask("Files.GetDirectory", **asked).get("files") or [])

    def picture(self, file: Path) -> None:
        """Of its screen."""
        command = ["import", "-silent", "-window", "root", str(file)]
        screen = {"DISPLAY": f":{self.display}", "XAUTHORITY": str(self.home / "xauthority")}
        subprocess.run(command, env=os.environ | screen, check=True, timeout=60)


@contextmanager
def running(home: Path, films: Sequence[Item], addon: Path) -> Iterator[Kodi]:
    """Start Kodi with files of these films, and with the add-on from its zip."""
    kodi = Kodi(home, _free(), 90 + os.getpid() % 900)
    _prepare(kodi, films, addon)
    (home / "xauthority").touch()
    screen = [f"--server-num={kodi.display}", f"--auth-file={home / 'xauthority'}"]
    command = ["timeout", str(_LONGEST), "xvfb-run", *screen, "-s", "-screen 0 1280x720x24"]
    command += ["kodi", "--standalone", "--audio-backend=null"]
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(
            command, env=_ENVIRONMENT | {"HOME": str(home)}, stdout=log, stderr=log, start_new_session=True
        )
        try:
            _wait(lambda: kodi.ask("JSONRPC.Version"))
            _scan(kodi, len(films))
            kodi.ask("Addons.SetAddonEnabled", addonid=ID, enabled=True)
            yield kodi
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(20)


def _prepare(kodi: Kodi, films: Sequence[Item], addon: Path) -> None:
    settings = {
        "services.webserver": "true",
        "services.webserverport": str(kodi.port),
        "services.webserverauthentication": "false",
        "services.esenabled": "false",
    }
    data, library = kodi.home / ".kodi" / "userdata", kodi.home / "films"
    data.mkdir(parents=True)
    lines = "".join(f'<setting id="{name}">{value}</setting>' for name, value in settings.items())
    (data / "guisettings.xml").write_text(f'<settings version="2">{lines}</settings>')
    with zipfile.ZipFile(addon) as archive:
        archive.extractall(kodi.home / ".kodi" / "addons")
    for film in films:
        title = film.title.removesuffix(f" ({film.year})")
        folder = library / f"film {film.id}"
        folder.mkdir(parents=True)
        (folder / "film.mkv").touch()
        ids = "".join(f'<uniqueid type="{kind}">{id_}</uniqueid>' for kind, id_ in film.ids.items())
        (folder / "film.nfo").write_text(
            f"<movie><title>{escape(title)}</title><year>{film.year}</year>{ids}</movie>", encoding="utf-8"
        )


def _scan(kodi: Kodi, films: int) -> None:
    """Say that the folder has films, as the dialogue "Set content" does, and scan it."""
    database = next((kodi.home / ".kodi" / "userdata" / "Database").glob("MyVideos*.db"))
    with closing(sqlite3.connect(database, timeout=20)) as opened, opened:
        opened.execute(
            "INSERT INTO path (strPath, strContent, strScraper, strHash, scanRecursive, useFolderNames,"
            " strSettings, noUpdate, exclude)"
            " VALUES (?, 'movies', 'metadata.local', '', 2147483647, 1, '', 0, 0)",
            (f"{kodi.home / 'films'}/",),
        )
    kodi.ask("VideoLibrary.Scan")
    _wait(lambda: len(kodi.films()) == films)


def _wait(done: Any) -> None:
    end = time.monotonic() + _STEP
    while True:
        try:
            if done():
                return
        except (OSError, HTTPException):
            pass
        assert time.monotonic() < end, "Kodi does not do it"
        time.sleep(0.5)


def _free() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])
