"""A reader that knows only the documented format gets the scores of the test vectors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

pytest.importorskip("cryptography", reason="needs the device extra")

from plain_reader import PlainReader

from solera.cli import app
from solera.core.errors import BundleError
from solera.device.bundle import Bundle, Item
from solera.device.device import Device
from solera.device.publish import export, start
from solera.device.vectors import vectors_of
from solera.runs.blend import write_blend
from solera.runs.run import BlendSettings


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "compact"])
@pytest.mark.parametrize("method", ["fedease", "fedslist", "fedslist-sparse", "fedhist"])
def test_a_plain_reader_gets_the_same_scores(method, whole, bundled):
    """Scores, their order and their parts: within the tolerance, which is that of float32 sums."""
    bundle = bundled(method, whole=whole)
    made = json.loads(json.dumps(vectors_of(Bundle.open(bundle), 6)))
    reader = PlainReader(bundle)
    assert (made["bundle"], made["items"]) == (reader.digest, len(reader.catalogue))
    assert len({len(case["history"]) for case in made["cases"]}) >= 5
    for case in made["cases"]:
        scores, parts = reader.scores(case["history"])
        close = made["tolerance"] * max(map(abs, case["scores"]))
        own = sorted((scores[i] for i in range(reader.n) if i not in case["history"]), reverse=True)
        assert len(case["items"]) == len(set(case["items"])) == reader.n - len(case["history"])
        assert own == pytest.approx(case["scores"], abs=close, rel=0)
        assert [scores[item] for item in case["items"]] == pytest.approx(case["scores"], abs=close, rel=0)
        best = case["items"][0]
        assert [each[best] for each in parts] == pytest.approx(case["parts"], abs=close, rel=0)
        assert sum(case["parts"]) + case["popular"] == pytest.approx(case["scores"][0], abs=close, rel=0)


@pytest.mark.parametrize("block", ["sasrec", "ligr", "hstu"])
def test_a_plain_reader_gets_the_scores_of_transformers_and_blends(block, trained, data, keys, tmp_path):
    """Histories are shorter and longer than what the network reads."""
    run, linear = trained(f"fedsasrec-{block}"), trained("fedslist")
    both = BlendSettings(weight=0.3, validation={})
    write_blend(tmp_path / "blend", (linear.path, run.path), both, run.result)
    for folder, method in ((run.path, "fedsasrec"), (tmp_path / "blend", "fedslist & fedsasrec")):
        bundle = export(folder, tmp_path / "a.bundle", Path(f"{keys}.key"), data=data)
        made, reader = vectors_of(bundle, 6), PlainReader(bundle.path)
        assert made["method"] == method
        for case in made["cases"]:
            scores, parts = reader.scores(case["history"])
            assert (case["parts"], case["popular"], parts) == (None, None, [])
            close = made["tolerance"] * max(map(abs, case["scores"]))
            assert [scores[item] for item in case["items"]] == pytest.approx(case["scores"], abs=close, rel=0)


def test_vectors_are_those_of_the_device(bundled, tmp_path):
    device = Device.create(tmp_path / "me", Bundle.open(bundled("fedslist", whole=False)))
    case = vectors_of(device.bundle, 3)["cases"][1]
    ids = [device.catalogue.items[row].id for row in case["history"]]
    device.add_all([(id_, time) for time, id_ in enumerate(ids)], "me", "test")
    found = device.recommend(5)
    assert [device.catalogue.number[one.item] for one in found] == case["items"][:5]
    assert [one.score for one in found] == case["scores"][:5]
    device.close()


def test_the_command(bundled, tmp_path):
    path = tmp_path / "vectors.json"
    done = CliRunner().invoke(app, ["bundle", "show", str(bundled("fedhist")), "--vectors", str(path)])
    assert "20 histories" in " ".join(done.stdout.split())
    assert len(json.loads(path.read_text())["cases"]) == 20
    with pytest.raises(BundleError, match="no trained model that scores by a history alone"):
        vectors_of(Bundle.open(bundled("fedmf")))


def test_genres_are_in_the_catalogue(keys, tmp_path):
    items = [Item("1", "Heat (1995)", 1995, ("Crime", "Drama")), Item("2", "Up", 2009)]
    key = Path(f"{keys}.key")
    bundle = start("fedmf", items, tmp_path / "a.bundle", key)
    assert bundle.manifest.format == 3
    assert bundle.catalogue() == items
    assert PlainReader(bundle.path).catalogue == [
        ["1", "Heat (1995)", 1995, ["Crime", "Drama"]],
        ["2", "Up", 2009, []],
    ]
    without = start("fedmf", [item._replace(genres=()) for item in items], tmp_path / "b.bundle", key)
    assert (without.manifest.format, PlainReader(without.path).catalogue[1]) == (1, ["2", "Up", 2009])


def test_compact_weights_with_genres(trained, data, keys, tmp_path, monkeypatch):
    """A run's data set gives the genres; weights are told apart by their names."""
    monkeypatch.setattr("solera.device.publish.genres", lambda *_: {"3": ("Drama",)})
    monkeypatch.setattr("solera.device.publish.ids_elsewhere", lambda *_: {})
    monkeypatch.setattr("solera.device.publish.load", lambda *_, **__: data)
    made = [
        export(trained("fedslist").path, tmp_path / name, Path(f"{keys}.key"), whole=name == "whole")
        for name in ("whole", "compact")
    ]
    for bundle in made:
        assert bundle.manifest.format == 3
        assert bundle.catalogue()[3].genres == ("Drama",)
        assert len(vectors_of(bundle, 2)["cases"]) == 2
    assert ["levels" in PlainReader(bundle.path).tensors for bundle in made] == [False, True]


def test_genres_of_movielens_files(tmp_path):
    from solera.data.readers import flagged_genres, genres_at

    films = tmp_path / "movies.dat"
    films.write_text("1::Toy Story (1995)::Animation|Children's|Comedy\n2::Amélie::\n3::Short\n", "latin-1")
    assert genres_at(2, "::", "|", encoding="latin-1")(films) == {
        "1": ("Animation", "Children's", "Comedy"),
        "2": (),
    }
    flags = tmp_path / "u.item"
    flags.write_text("1|Toy Story (1995)|01-Jan-1995||http://x|0|0|0|1|1|1|0|0|0|0|0|0|0|0|0|0|0|0|0\n")
    assert flagged_genres(flags) == {"1": ("Animation", "Children's", "Comedy")}
