"""MPD, a real one: from a track that plays to a changed list of artists."""

from __future__ import annotations

import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from shutil import which

import numpy as np
import pytest

from in_process import solera
from solera.core.errors import DeviceError
from solera.device import connectors
from solera.device.bundle import Bundle, Item
from solera.device.connectors import Connection
from solera.device.device import Device

ARTISTS = [Item(f"a{n}", f"Artist {n}", None, (), {"musicbrainz": f"mb-{n}"}) for n in range(20)]
OWNED = (0, 2, 4, 6, 7)
HERE = 8_000  # samples of a second
SECONDS = 120


def track(artist: Item) -> bytes:
    """A silent WAV file whose ID3 tag names an artist, as taggers write it."""

    def frame(name: bytes, text: str) -> bytes:
        content = b"\0" + text.encode("latin-1")
        return name + struct.pack(">IH", len(content), 0) + content

    id_ = "MusicBrainz Artist Id\0" + artist.ids["musicbrainz"]
    frames = frame(b"TPE1", artist.title) + frame(b"TIT2", "Song") + frame(b"TXXX", id_)
    size = bytes((len(frames) >> shift) & 127 for shift in (21, 14, 7, 0))
    tag = b"ID3\3\0\0" + size + frames
    tag += b"\0" * (len(tag) % 2)
    sound = bytes([128]) * (HERE * SECONDS)
    chunks = b"fmt " + struct.pack("<IHHIIHH", 16, 1, 1, HERE, HERE, 1, 8)
    chunks += b"data" + struct.pack("<I", len(sound)) + sound + b"id3 " + struct.pack("<I", len(tag)) + tag
    return b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WAVE" + chunks


class Mpd:
    """One that runs, and what a person does with it."""

    def __init__(self, port: int) -> None:
        self.port = port

    def do(self, *commands: str) -> str:
        with closing(socket.create_connection(("127.0.0.1", self.port), 10)) as opened:
            said = opened.makefile("rw", newline="\n")
            assert said.readline().startswith("OK MPD")
            answer = ""
            for command in commands:
                said.write(f"{command}\n")
                said.flush()
                while (line := said.readline()) and line != "OK\n":
                    assert not line.startswith("ACK"), line
                    answer += line
            return answer

    def hear(self, number: int) -> None:
        """Play an artist's track for more than half a minute."""
        self.do("clear", f'add "{number}.wav"', "play 0")
        time.sleep(0.5)
        self.do("seekcur 40")
        time.sleep(0.5)


@pytest.fixture
def mpd(tmp_path) -> Iterator[Mpd]:
    if which("mpd") is None:
        pytest.skip("needs mpd")
    home = tmp_path / "mpd"
    (home / "music").mkdir(parents=True)
    for number in OWNED:
        (home / "music" / f"{number}.wav").write_bytes(track(ARTISTS[number]))
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    settings = {
        "music_directory": home / "music",
        "db_file": home / "db",
        "log_file": home / "log",
        "bind_to_address": "127.0.0.1",
        "port": port,
        "metadata_to_use": "artist,title,musicbrainz_artistid",
    }
    lines = [f'{name} "{value}"' for name, value in settings.items()]
    lines += ["audio_output {", 'type "null"', 'name "none"', 'sync "yes"', "}"]
    (home / "conf").write_text("\n".join(lines) + "\n")
    process = subprocess.Popen(
        ["mpd", "--no-daemon", "--stderr", str(home / "conf")], stderr=subprocess.DEVNULL
    )
    running = Mpd(port)
    try:
        end = time.monotonic() + 20
        while True:
            try:
                if len(running.do("list artist").splitlines()) == len(OWNED):
                    break
                running.do("update")
            except OSError:
                pass
            assert time.monotonic() < end, "mpd does not do it"
            time.sleep(0.3)
        yield running
    finally:
        process.terminate()
        process.wait(10)


@pytest.fixture(scope="module")
def bundle(keys, tmp_path_factory) -> Bundle:
    """A bundle of artists: listeners keep to even or to odd ones."""
    from solera.data.interactions import Interactions
    from solera.device.publish import export
    from solera.methods import find
    from solera.runs import RunConfig, train

    root, draw = tmp_path_factory.mktemp("artists"), np.random.default_rng(3)
    pairs = [
        (f"u{u}", f"a{n}") for u in range(60) for n in draw.permutation(20)[:9] if n % 2 == u % 2 or n < 4
    ]
    users, items = zip(*pairs, strict=True)
    data = Interactions.from_columns("artists", list(users), list(items), np.arange(len(users)))
    config = RunConfig(
        method="fedease", dataset="artists", rounds=1, options=find("fedease").config.model_dump()
    )
    train(config, data, out=root / "run", threads=1)
    return export(root / "run", root / "a.bundle", Path(f"{keys}.key"), data=data, items=ARTISTS)


def test_from_a_track_to_a_changed_list(bundle, mpd, tmp_path):
    device = Device.create(tmp_path / "me", bundle)
    url = f"mpd://127.0.0.1:{mpd.port}"
    mpd.hear(2)
    done = solera("device", "connect", device.path, "mpd", "--url", url)
    assert done.returncode == 0, done.stderr
    assert device.history() == ["a2"]
    assert abs((device.times()["a2"] or 0) - time.time()) < 90
    before = [one.item for one in device.recommend(5)]
    again = connectors.sync(device, connectors.listed(device)[0])
    assert (again.added, again.owned) == (0, len(OWNED)), "one play is one entry"
    mpd.hear(7)
    assert [one.item for one in device.recommend(5)] == before, "the control: nothing has been asked yet"
    done = solera("device", "connect", device.path, "--refresh")
    assert done.returncode == 0, done.stderr
    assert device.history() == ["a2", "a7"]
    assert [one.item for one in device.recommend(5)] != before
    mpd.do("clear")
    assert connectors.sync(device, connectors.listed(device)[0]).added == 0
    device.close()


def test_what_was_begun_only_is_not_heard(bundle, mpd, tmp_path):
    device = Device.create(tmp_path / "me", bundle)
    mpd.do("clear", 'add "4.wav"', "play 0")
    connectors.connect(device, Connection(kind="mpd", url=f"mpd://127.0.0.1:{mpd.port}", user="me"))
    assert device.history() == []
    device.close()


@pytest.mark.parametrize(("url", "said"), [
    ("http://8.8.8.8:8080", "which is not in your home's network"),
    ("http://[2606:4700::1111]", "which is not in your home's network"),
    ("ftp://127.0.0.1", "is not an address"),
    ("http://ann:secret@127.0.0.1", "is not an address"),
    ("http://127.0.0.1:9", "does not answer"),
])  # fmt: skip
def test_an_address_outside_of_the_home_is_not_asked(device, url, said, monkeypatch):
    asked: list[object] = []

    def connect(_: socket.socket, where: object) -> None:
        asked.append(where)
        raise ConnectionRefusedError

    monkeypatch.setattr(socket.socket, "connect", connect)
    with pytest.raises(DeviceError, match=said):
        connectors.connect(device, Connection(kind="kodi", url=url, user="me"))
    assert bool(asked) == url.endswith(":9")
    assert not connectors.listed(device)
