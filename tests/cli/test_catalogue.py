"""What there is to choose from is asked of the package once, and again when its source has changed."""

from __future__ import annotations

import json
import os

import pytest

from solera.cli import catalogue


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of one method, and the number of times that it was asked."""
    asked: list[int] = []

    def made():
        asked.append(1)
        return {"methods": [{"name": (tmp_path / "solera/methods/one.py").read_text()}]}

    (tmp_path / "solera" / "methods").mkdir(parents=True)
    (tmp_path / "solera" / "methods" / "one.py").write_text("fedone")
    monkeypatch.setattr(catalogue, "PACKAGE", tmp_path / "solera")
    monkeypatch.setattr(catalogue, "cache_dir", lambda: tmp_path / "cache")
    monkeypatch.setattr(catalogue, "made", made)
    monkeypatch.delenv("SOLERA_IMPORT", raising=False)
    yield tmp_path / "solera", asked
    catalogue._read.cache_clear()


def names() -> list[str]:
    """As another process reads them."""
    catalogue._read.cache_clear()
    return [each["name"] for each in catalogue.catalogue()["methods"]]


def test_the_package_is_asked_again_when_its_source_has_changed(package, tmp_path):
    folder, asked = package
    assert names() == names() == ["fedone"]
    assert len(asked) == 1
    (folder / "methods" / "one.py").write_text("fedtwo")
    os.utime(folder / "methods" / "one.py", (1, 1))
    assert names() == names() == ["fedtwo"]
    assert len(asked) == 2
    assert len(list((tmp_path / "cache").rglob("*.json"))) == 1, "the former one is removed"


def test_a_wheel_brings_it_along(package):
    folder, asked = package
    (folder / "catalogue.json").write_text(json.dumps({"methods": [{"name": "of the wheel"}]}))
    assert names() == ["of the wheel"]
    assert asked == []


def test_a_cache_that_cannot_be_used_does_no_harm(package, tmp_path):
    _, asked = package
    (tmp_path / "cache").write_text("a file")
    assert names() == names() == ["fedone"]
    assert len(asked) == 2
