"""Where files come from: the user's folders, the cache, the publisher (here a server on this machine)."""

from __future__ import annotations

import hashlib
import io
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from solera.core.errors import DataError
from solera.data.datasets import available, info, load
from solera.data.files import Archive
from solera.data.registry import REGISTRY

U_DATA = "".join(f"1\t{item}\t3\t{880_000_000 - item}\n" for item in range(1, 7))
U_ITEM = "1|Toy Story (1995)|01-Jan-1995||http://x|0|1\n2|Misérables, Les (1995)|||x|0|1\n"


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache and no folder of the user's; the cache."""
    cache = tmp_path / "cache"
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda _: cache)
    monkeypatch.delenv("SOLERA_DATA", raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return cache


def filmtrust(home: Path, text: str) -> Path:
    (home / "filmtrust").mkdir(parents=True)
    (home / "filmtrust" / "ratings.txt").write_text(text, encoding="utf-8")
    return home


def test_the_given_folder_comes_before_the_environment_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = filmtrust(tmp_path / "a", "1 1 2\n")
    other = filmtrust(tmp_path / "b", "1 1 2\n1 2 2\n")
    assert available("filmtrust") == "by hand"
    monkeypatch.setenv("SOLERA_DATA", str(other))
    assert available("filmtrust") == "folder"
    assert len(load("filmtrust", min_interactions=0)) == 2
    assert len(load("filmtrust", data_dir=given, min_interactions=0)) == 1
    with pytest.raises(DataError, match=r"data folder .*nowhere does not exist"):
        load("filmtrust", data_dir=tmp_path / "nowhere")


def test_a_set_fetched_by_hand_says_what_goes_where() -> None:
    with pytest.raises(DataError, match="downloaded by hand") as caught:
        load("gowalla")
    for part in (info("gowalla").page, "train.txt", "<dir>/gowalla/", "--data-dir", "SOLERA_DATA"):
        assert part in caught.value.hint


@pytest.fixture
def publisher(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """A server on this machine with a small archive; its address and the archive's checksum."""
    site = tmp_path / "site"
    site.mkdir()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as zipped:
        zipped.writestr("ml-100k/u.data", U_DATA)
        zipped.writestr("ml-100k/../../u.item", U_ITEM.encode("latin-1"))  # must not leave the cache
        zipped.writestr("ml-100k/README", "not wanted")
    (site / "a.zip").write_bytes(packed.getvalue())

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    checksum = "md5:" + hashlib.md5(packed.getvalue()).hexdigest()
    yield f"http://127.0.0.1:{server.server_port}/a.zip", checksum
    server.shutdown()
    thread.join()
    server.server_close()


def use(monkeypatch: pytest.MonkeyPatch, url: str, checksum: str) -> None:
    entry = replace(REGISTRY["ml-100k"], archive=Archive(url, checksum))
    monkeypatch.setitem(REGISTRY, "ml-100k", entry)


def test_a_download_is_checked_and_kept(
    alone: Path, publisher: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, *publisher)
    assert available("ml-100k") == "download"
    assert load("ml-100k").title(1) == "Misérables, Les (1995)"
    assert available("ml-100k") == "cache"
    assert sorted(p.name for p in (alone / "ml-100k").rglob("*")) == ["u.data", "u.item"]
    use(monkeypatch, "http://127.0.0.1:9/gone.zip", publisher[1])
    assert len(load("ml-100k")) == 6  # nothing is asked of the publisher again


@pytest.mark.parametrize("fault", ["checksum", "address", "contents"])
def test_a_failed_download_leaves_nothing(
    alone: Path, publisher: tuple[str, str], monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    url, checksum = publisher
    if fault == "checksum":
        use(monkeypatch, url, "md5:" + "0" * 32)
    elif fault == "address":
        use(monkeypatch, url + ".missing", checksum)
    else:
        use(monkeypatch, url, checksum)
        form = replace(REGISTRY["ml-100k"].forms[0], files=("absent",), titles=None, attributes=None)
        monkeypatch.setitem(REGISTRY, "ml-100k", replace(REGISTRY["ml-100k"], forms=(form,)))
    message = {
        "checksum": "does not have the expected",
        "address": "cannot download",
        "contents": "does not contain",
    }
    with pytest.raises(DataError, match=message[fault]) as caught:
        load("ml-100k")
    assert "<dir>/ml-100k/" in caught.value.hint
    assert list(alone.iterdir()) == []
