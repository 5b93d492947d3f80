"""Bundles of blends: they serve as the blend does, and no federation trains them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from solera.core.errors import BundleError, DeviceError
from solera.data.ragged import Ragged
from solera.device.bundle import Bundle
from solera.device.device import Device
from solera.device.model import method_of
from solera.device.models.opened import open_model
from solera.device.publish import export
from solera.runs.blend import blend_runs

HISTORY = np.array([3, 1, 4, 15, 9, 2])


@pytest.fixture(scope="module")
def blended(trained, tmp_path_factory):
    folder = tmp_path_factory.mktemp("blends") / "both"
    return blend_runs(trained("fedslist"), trained("fedsasrec"), out=folder)


@pytest.fixture(scope="module")
def bundle(blended, data, keys, tmp_path_factory) -> Bundle:
    path = tmp_path_factory.mktemp("bundles") / "both.bundle"
    return export(blended.path, path, Path(f"{keys}.key"), data=data, whole=True)


def test_it_serves_as_the_blend_does(blended, bundle):
    wanted = blended.serve(Ragged.of_lengths(np.array([len(HISTORY)]), HISTORY))(np.array([0]))[0]
    assert open_model(bundle).scores(HISTORY) == pytest.approx(wanted.numpy(), rel=1e-5, abs=1e-5)
    assert bundle.manifest.second.weight == blended.result.options["weight"]
    assert bundle.manifest.second.method == "fedsasrec"


def test_a_compact_one_has_nearly_the_same_scores(blended, bundle, data, keys, tmp_path):
    compact = export(blended.path, tmp_path / "compact.bundle", Path(f"{keys}.key"), data=data)
    scores, wanted = (open_model(each).scores(HISTORY) for each in (compact, bundle))
    assert scores == pytest.approx(wanted, rel=0.1, abs=0.1)


def test_a_device_recommends_from_it(bundle, data, tmp_path):
    device = Device.create(tmp_path / "me", bundle)
    ids = [data.item_map.id(int(item)) for item in HISTORY]
    device.add_all([(id_, time) for time, id_ in enumerate(ids)], "me", "test")
    shown = device.recommend(3)
    best = open_model(bundle).best(HISTORY, HISTORY, 3)
    assert [each.item for each in shown] == [data.item_map.id(item) for item, _ in best]


def test_it_gives_no_reasons_and_is_not_trained(bundle):
    with pytest.raises(DeviceError, match="cannot give reasons"):
        open_model(bundle).parts(HISTORY, [0])
    with pytest.raises(BundleError, match="does not train"):
        method_of(bundle)
