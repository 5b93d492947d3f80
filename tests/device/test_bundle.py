"""What was changed, cut off or signed by somebody else is refused; what is taken is what was published."""

from __future__ import annotations

import hashlib
import json
import stat
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load, save

pytest.importorskip("cryptography", reason="needs the device extra")

from solera.core.errors import BundleError, DeviceError
from solera.device.bundle import (
    CATALOGUE,
    COMPACT_FORMAT,
    FORMAT,
    IDS_FORMAT,
    MANIFEST,
    SIGNATURE,
    TENSORS,
    Bundle,
    Item,
    fingerprint,
)
from solera.device.keys import make_keys, read_public, read_secret, sign
from solera.device.model import Model
from solera.device.models.opened import open_model
from solera.device.publish import catalogue_of, export, extend, start


def members(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def pack(path: Path, parts: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return path


def resigned(path: Path, parts: dict[str, bytes], keys: Path, **changes) -> Path:
    """The parts with a manifest that fits them, signed by the publisher: only its content may be wrong."""
    digests = {name: hashlib.sha256(parts[name]).hexdigest() for name in (CATALOGUE, TENSORS)}
    text = json.dumps(json.loads(parts[MANIFEST]) | {"sha256": digests} | changes).encode()
    signature = sign(read_secret(Path(f"{keys}.key")), text)
    return pack(path, parts | {MANIFEST: text, SIGNATURE: signature})


def test_it_holds_what_the_run_shares_and_the_catalogue(bundled, trained, data, keys):
    bundle = Bundle.open(bundled("fedslist"), read_public(Path(f"{keys}.pub")))
    assert bundle.manifest.method == "fedslist"
    assert bundle.manifest.catalogue_version == 1
    assert bundle.manifest.trained["test"] == trained("fedslist").test.model_dump()
    catalogue = bundle.catalogue()
    assert [item.id for item in catalogue] == data.item_map.ids.tolist()
    assert catalogue[3] == Item("3", "Film 3 (1963)", 1963)
    tensors = load(bundle.read(TENSORS))
    assert tensors.keys() == {"weights"}
    assert torch.equal(tensors["weights"], trained("fedslist")._simulation.state.shared["weights"])


def test_nothing_personal_is_published(bundled, trained):
    shared = load(Bundle.open(bundled("fedmf")).read(TENSORS))
    personal = trained("fedmf")._simulation.state.personal.tensors()
    assert personal
    assert shared.keys() & personal.keys() == set()
    assert list(shared) == ["items"]


def test_a_table_per_client_is_not_published(trained, data, keys, tmp_path):
    with pytest.raises(BundleError, match="a table for every client"):
        export(trained("fedem").path, tmp_path / "x.bundle", Path(f"{keys}.key"), data=data)


def test_a_bundle_to_begin_with_and_its_next_catalogue(data, keys, tmp_path):
    key = Path(f"{keys}.key")
    first = start(
        "fedmf", catalogue_of(data), tmp_path / "a.bundle", key, options={"embedding_size": 3}, seed=5
    )
    assert (first.manifest.seed, first.manifest.trained) == (5, {})
    assert Model(first).shared == {}
    with pytest.raises(DeviceError, match="the model of 'fedmf' has not been trained yet"):
        open_model(first).scores(np.array([1]))
    new = [Item("new", "A new one (2026)", 2026)]
    second = extend(first, new, tmp_path / "b.bundle", key)
    assert second.manifest.catalogue_version == 2
    assert second.catalogue() == [*first.catalogue(), *new]
    with pytest.raises(BundleError, match="already in the catalogue"):
        extend(second, new, tmp_path / "c.bundle", key)
    with pytest.raises(BundleError, match="no items"):
        extend(second, [], tmp_path / "c.bundle", key)


def test_the_same_run_gives_the_same_file(bundled, trained, data, keys, tmp_path):
    again = tmp_path / "again.bundle"
    export(trained("fedslist").path, again, Path(f"{keys}.key"), data=data)
    assert again.read_bytes() == bundled("fedslist", whole=False).read_bytes()


def test_another_key_is_refused(bundled, tmp_path):
    make_keys(tmp_path / "stranger")
    other = read_public(tmp_path / "stranger.pub")
    with pytest.raises(BundleError, match="another key") as error:
        Bundle.open(bundled("fedslist"), other)
    assert fingerprint(other) in error.value.message


@pytest.mark.parametrize("name", [MANIFEST, SIGNATURE, CATALOGUE, TENSORS])
def test_a_changed_member_is_refused(bundled, tmp_path, name):
    parts = members(bundled("fedslist"))
    middle = len(parts[name]) // 2
    changed = bytearray(parts[name])
    changed[middle] ^= 1
    path = pack(tmp_path / "changed.bundle", parts | {name: bytes(changed)})
    with pytest.raises(BundleError, match="signed") as error:
        bundle = Bundle.open(path)
        bundle.read(CATALOGUE)
        bundle.read(TENSORS)
    assert error.value.hint


@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_no_bit_can_change_what_is_read(bundled, tmp_path_factory, place, bit):
    """Every flipped bit is refused, or stands where it means nothing (a date in the zip's directory)."""
    original = bundled("fedslist")
    content = bytearray(original.read_bytes())
    # The tensors are most of the file: half of the flips go to the rest.
    at = int(place * len(content)) if bit % 2 else len(content) - 1 - int(place * 1200)
    content[at] ^= 1 << bit
    path = tmp_path_factory.getbasetemp() / "flipped.bundle"
    path.write_bytes(content)
    try:
        found = Bundle.open(path)
        read = [found.read(CATALOGUE), found.read(TENSORS)]
    except BundleError:
        return
    whole = Bundle.open(original)
    assert found.manifest == whole.manifest
    assert read == [whole.read(CATALOGUE), whole.read(TENSORS)]


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_a_truncated_file_is_refused(bundled, tmp_path, share):
    content = bundled("fedslist").read_bytes()
    path = tmp_path / "short.bundle"
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(BundleError, match="is incomplete"):
        Bundle.open(path)


@pytest.mark.parametrize(
    ("version", "said"),
    [(FORMAT - 1, ("older", "ask the publisher")), (IDS_FORMAT + 1, ("newer", "upgrade solera"))],
)
def test_another_format_is_refused(bundled, keys, tmp_path, version, said):
    path = resigned(tmp_path / "b", members(bundled("fedslist")), keys, format=version)
    with pytest.raises(BundleError, match=said[0]) as error:
        Bundle.open(path)
    assert said[1] in error.value.hint


def test_what_is_not_a_bundle_is_refused(bundled, keys, tmp_path):
    parts = members(bundled("fedslist"))
    zeros = parts | {CATALOGUE: bytes(1 << 20)}
    made = {
        "bomb": pack(tmp_path / "bomb", zeros, zipfile.ZIP_DEFLATED),
        "more": pack(tmp_path / "more", parts | {"run.py": b""}),
        "less": pack(tmp_path / "less", {MANIFEST: parts[MANIFEST]}),
        "long": pack(tmp_path / "long", parts | {MANIFEST: bytes(1 << 21)}),
        "text": tmp_path / "text",
        "none": tmp_path / "none",
        "other": resigned(tmp_path / "other", parts, keys, kind="letter"),
        "key": resigned(tmp_path / "key", parts, keys, run="rm"),
    }
    made["text"].write_text("hello")
    for name, path in made.items():
        with pytest.raises(BundleError) as error:
            Bundle.open(path)
        assert error.value.hint, name


@pytest.fixture(params=[Model, open_model], ids=["to train", "to serve"])
def read(request):
    """What reads the model of a bundle."""
    return request.param


@pytest.mark.parametrize(
    "change",
    [
        lambda t: {"weights": t["weights"][:-1]},
        lambda t: {"weights": t["weights"].double()},
        lambda t: {"weights": t["weights"].clone().fill_(float("nan"))},
        lambda t: {"other": t["weights"]},
        lambda t: t | {"users": torch.zeros(2)},
    ],
    ids=["shape", "type", "nan", "name", "undeclared"],
)
def test_tensors_are_what_the_method_declares(bundled, keys, tmp_path, change, read):
    parts = members(bundled("fedslist"))
    wrong = save({k: v.contiguous() for k, v in change(load(parts[TENSORS])).items()})
    path = resigned(tmp_path / "b", parts | {TENSORS: wrong}, keys)
    with pytest.raises(BundleError):
        read(Bundle.open(path))


@pytest.mark.parametrize(
    "change",
    [
        lambda t: {"counts": t["counts"] + 1},
        lambda t: {"counts": t["counts"].flip(0) - t["counts"]},
        lambda t: {"counts": t["counts"][:-1]},
        lambda t: {"scales": t["scales"] * float("inf")},
        lambda t: {"scales": t["scales"].double()},
        lambda t: {"sources": t["sources"].int() + 80},
        lambda t: {"sources": -1 - t["sources"].int()},
        lambda t: {"levels": t["levels"][:-1]},
        lambda t: {"levels": t["levels"].float()},
        lambda t: {"users": torch.zeros(2)},
    ],
    ids=["sum", "negative", "items", "infinite", "type", "range", "below", "fewer", "levels", "undeclared"],
)
def test_compact_tensors_are_of_the_catalogue_and_finite(bundled, keys, tmp_path, change, read):
    parts = members(bundled("fedslist", whole=False))
    tensors = load(parts[TENSORS])
    read(Bundle.open(resigned(tmp_path / "right", parts, keys)))
    path = resigned(tmp_path / "b", parts | {TENSORS: save(tensors | change(tensors))}, keys)
    with pytest.raises(BundleError):
        read(Bundle.open(path))
    trained = resigned(tmp_path / "c", members(bundled("fedmf")), keys, format=COMPACT_FORMAT)
    read(Bundle.open(trained))


def test_neighbours_that_do_not_exist_are_refused(bundled, keys, tmp_path, read):
    parts = members(bundled("fedslist-sparse"))
    tensors = load(parts[TENSORS])
    assert tensors["neighbours"].shape == (40, 30)
    wrong = tensors | {"neighbours": tensors["neighbours"] + 60}
    with pytest.raises(BundleError, match="do not exist"):
        read(Bundle.open(resigned(tmp_path / "b", parts | {TENSORS: save(wrong)}, keys)))


@pytest.mark.parametrize("method", ["fedease", "fedslist", "fedslist-sparse"])
def test_a_compact_bundle_is_smaller_and_scores_almost_the_same(bundled, method):
    whole, compact = Bundle.open(bundled(method)), Bundle.open(bundled(method, whole=False))
    assert len(compact.read(TENSORS)) < len(whole.read(TENSORS))
    sizes, kept = load(whole.read(TENSORS))["weights"].abs().flatten(), load(compact.read(TENSORS))
    missing = sizes.sort(descending=True).values[len(kept["levels"]) :]  # what was left out, largest first
    # A weight is off by half a level, or left out. An item of the history has a weight in every channel.
    most = max([float(kept["scales"].max()) / 2, *missing[:1].tolist()])
    for history in ([4, 2, 31], [7], [1, 1, 30, 8, 9]):
        known = np.array(history)
        expected, found = open_model(whole).scores(known), open_model(compact).scores(known)
        assert np.abs(found - expected).max() <= 2 * len(history) * most * (1 + 1e-5)


def test_a_method_or_option_from_the_future_is_refused(bundled, keys, tmp_path, read):
    for changes in ({"method": "fednew"}, {"options": {"newer": 1}}, {"plugins": ["plgc"]}):
        path = resigned(tmp_path / "b", members(bundled("fedslist")), keys, **changes)
        with pytest.raises(BundleError, match="does not support its method"):
            read(Bundle.open(path))


def test_the_catalogue_is_of_as_many_items_each_once(bundled, keys, tmp_path):
    parts = members(bundled("fedslist"))
    rows = json.loads(parts[CATALOGUE])
    for wrong in (rows[:-1], [*rows[:-1], rows[0]], [*rows[:-1], ["x", "X", "1999"]], [[1]], 3):
        content = json.dumps(wrong).encode()
        path = resigned(tmp_path / "b", parts | {CATALOGUE: content}, keys)
        with pytest.raises(BundleError, match="catalogue"):
            Bundle.open(path).catalogue()


def test_keys_are_never_overwritten_and_the_secret_one_is_private(tmp_path):
    secret, public = make_keys(tmp_path / "mine")
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    with pytest.raises(BundleError, match="already"):
        make_keys(tmp_path / "mine")
    with pytest.raises(BundleError, match="not a secret"):
        read_secret(public)
    with pytest.raises(BundleError, match="not a public"):
        read_public(secret)
