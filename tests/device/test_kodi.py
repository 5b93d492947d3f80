"""Kodi, a real one: from a watched film to a changed list on its screen."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from made_movielens import write_movielens
from real_kodi import MISSING, Kodi, running

from in_process import solera
from open_service import opened
from solera.device.bundle import Bundle, Item
from solera.device.choices import Choices
from solera.device.device import Device
from solera.device.making import make

PICTURE = os.environ.get("SOLERA_PICTURES", "")  # a folder for pictures of its screen
SOON = 8  # seconds
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"needs {', '.join(MISSING)}")


@pytest.fixture(scope="module")
def bundle(keys, tmp_path_factory) -> Bundle:
    root = tmp_path_factory.mktemp("films")
    write_movielens(root / "ml-latest")
    return make("ml-latest", root / "films.bundle", Path(f"{keys}.key"), data_dir=root)[0]


def titles(kodi: Kodi) -> list[str]:
    return [each["label"] for each in kodi.shown()]


@pytest.mark.slow
def test_from_a_watched_film_to_a_changed_list(bundle, tmp_path):
    me = tmp_path / "me"
    device = Device.create(me, bundle)
    films = [each for each in bundle.catalogue() if each.year and each.ids.get("tmdb")]
    owned: list[Item] = films[:24]
    with opened(me) as service:
        url = f"http://127.0.0.1:{service.port}"
        addon = tmp_path / "addon.zip"
        assert solera("device", "addon", me, "-o", addon, "--url", url).returncode == 0
        with running(tmp_path / "home", owned, addon) as kodi:
            first, second = (each.title.removesuffix(f" ({each.year})") for each in (owned[0], owned[1]))
            kodi.watch(first, "2024-11-30 20:15:00")
            done = solera("device", "connect", me, "kodi", "--url", kodi.url)
            assert done.returncode == 0, done.stderr
            assert device.history() == [owned[0].id]
            assert set(Choices(device.store, "me").listed()) == {each.id for each in owned}
            time.sleep(SOON)  # the service has seen the connection, and asked once
            before = titles(kodi)
            assert before[-1] == "Not in your library"
            assert set(before[:-1]) <= {each.title for each in owned[1:]}
            assert all(first in each["plot"] for each in kodi.shown()[:3]), "reasons"
            assert kodi.shown()[0]["file"].endswith("film.mkv"), "it can be played"
            others = kodi.shown("?others=1")
            assert others
            assert not {each["label"] for each in others} & {each.title for each in owned}
            kodi.watch(second, "2024-12-01 20:15:00")
            assert titles(kodi) == before, "the control: nothing has been asked yet"
            assert solera("device", "connect", me, "--refresh").returncode == 0
            after = titles(kodi)
            assert device.history() == [owned[0].id, owned[1].id]
            assert after != before
            assert owned[1].title not in after
            if PICTURE:
                place = ["plugin://plugin.video.solera/", "return"]
                kodi.ask("Input.Back")  # from the question whether the add-on may run
                kodi.ask("GUI.ActivateWindow", window="videos", parameters=place)
                time.sleep(6)
                kodi.ask("Input.Down")
                time.sleep(1)
                kodi.picture(Path(PICTURE) / "kodi.png")
    device.close()
