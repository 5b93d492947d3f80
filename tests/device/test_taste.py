"""A dislike changes the list, and people of a household are recommended to together."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("cryptography", reason="needs the device extra")

from solera.core.errors import DeviceError
from solera.device.bundle import Bundle
from solera.device.choices import Choices
from solera.device.device import Device
from solera.device.recommending import DeviceRecommendation

MINE, HERS = [("3", 1), ("14", 2), ("15", 3)], [("9", 1), ("26", 2), ("5", 3)]
METHODS = ("fedease", "fedslist", "fedhist", "fedsasrec")


@pytest.fixture(params=METHODS)
def device(request, bundled, tmp_path):
    made = Device.create(tmp_path / "d", Bundle.open(bundled(request.param)))
    made.add_all(MINE, "me", "test")
    made.add_all(HERS, "ana", "test")
    yield made
    made.close()


def scores(found: list[DeviceRecommendation]) -> dict[str, float]:
    return {one.item: one.score for one in found}


def test_what_is_like_a_disliked_item_falls_and_nothing_else(device):
    before = device.recommend(40)
    disliked = before[0].item
    choices = Choices(device.store, "me")
    choices.dislike(disliked)
    after = scores(device.recommend(40))
    assert disliked not in after
    like = np.maximum(device.model().similarity(device.catalogue.number[disliked]), 0)
    for item, score in scores(before).items():
        if item != disliked:
            fell = like[device.catalogue.number[item]] > 0
            assert after[item] < score if fell else after[item] == score
    nearest = device.similar(disliked, 1)[0].id
    falls = {item: scores(before)[item] - score for item, score in after.items()}
    assert nearest in {*dict(MINE), max(falls, key=falls.__getitem__)}
    choices.dislike(disliked, False)
    assert scores(device.recommend(40)) == scores(before)


def test_together_ranks_by_who_likes_an_item_less(device):
    together = device.recommend(40, along=["ana"])
    assert {*dict(MINE), *dict(HERS)}.isdisjoint(scores(together))
    alone = []
    for user in ("me", "ana"):
        known = [device.catalogue.number[item] for item in device.history(user)]
        every = device.model(user).scores(np.array(known), np.array([1.0, 2.0, 3.0]), 20_000.0)
        alone.append((every - every.mean()) / every.std())
    least = np.minimum(*alone)
    if device.bundle.manifest.method != "fedhist":  # no other of these methods reads dates
        wanted = [float(least[device.catalogue.number[one.item]]) for one in together]
        assert [one.score for one in together] == pytest.approx(wanted, abs=1e-6)
    assert scores(together) == scores(device.recommend(40, user="ana", along=["me"]))
    assert list(scores(together)) != [
        each for each in scores(device.recommend(40)) if each in scores(together)
    ]
    with pytest.raises(DeviceError, match="'nobody' has no history"):
        device.recommend(along=["nobody"])


def test_each_person_has_reasons_with_their_share(bundled, tmp_path):
    device = Device.create(tmp_path / "d", Bundle.open(bundled("fedease")))
    device.add_all(MINE, "me", "test")
    device.add_all(HERS, "ana", "test")
    for one in device.recommend(10, along=["ana"], reasons=3):
        (theirs,) = one.of_others
        assert {reason.item for reason in one.reasons} <= {"3", "14", "15"}
        assert {reason.item for reason in theirs.reasons} <= {"9", "26", "5"}
        assert one.raised == pytest.approx(sum(reason.part for reason in one.reasons))
        assert theirs.raised == pytest.approx(sum(reason.part for reason in theirs.reasons))
