"""The page of a bundle: one file that holds the model, and a policy that forbids connections."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from dataclasses import fields, replace
from importlib.resources import files
from pathlib import Path

import pytest

pytest.importorskip("cryptography", reason="needs the device extra")

from typer.testing import CliRunner

from solera.cli import app
from solera.core.errors import BundleError
from solera.device import page as pages
from solera.device.bundle import Bundle, Item, ModelEntry, SecondModel
from solera.device.models.served import FROM_HISTORY
from solera.device.page import write_page
from solera.device.publish import export

POLICY = re.compile(r'http-equiv="Content-Security-Policy" content="([^"]*)"')


def written(bundle: Path, folder: Path, title: str = "Films") -> str:
    return write_page(Bundle.open(bundle), folder, title).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("method", "whole"),
    [
        ("fedslist", False),
        ("fedslist-sparse", True),
        ("fedease", True),
        ("fedhist", True),
        ("fedsasrec-hstu", True),
    ],
)
def test_the_page_holds_the_bundle(bundled, tmp_path, method, whole):
    bundle = bundled(method, whole=whole)
    page = written(bundle, tmp_path / "page")
    held = re.search(r'id="bundle">([^<]*)<', page)
    assert held and base64.b64decode(held[1]) == bundle.read_bytes()
    assert sorted(file.name for file in (tmp_path / "page").iterdir()) == [
        *("app.webmanifest", "icon.svg", "index.html", "sw.js")
    ]
    assert "{{" not in re.sub(r"<script>.*</script>", "", page, flags=re.DOTALL)


def test_the_policy_allows_this_script_and_no_connection(bundled, tmp_path):
    page = written(bundled("fedslist"), tmp_path)
    found = POLICY.search(page)
    assert found
    rules = dict(rule.split(" ", 1) for rule in html.unescape(found[1]).split("; "))
    assert rules["default-src"] == rules["connect-src"] == rules["form-action"] == "'none'"
    for tag, rule in (("script", "script-src"), ("style", "style-src")):
        text = page[page.rindex(f"<{tag}>") + len(tag) + 2 : page.rindex(f"</{tag}>")]
        assert rules[rule] == f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
    assert not re.findall(r'(?:src|href)="(?!data:|\{\{)', page[: page.index("<style>")])


def test_a_title_is_text(bundled, tmp_path):
    page = written(bundled("fedslist"), tmp_path, "</title><script>{{bundle}}")
    assert "<title>&lt;/title&gt;&lt;script&gt;{{bundle}}</title>" in page


def test_the_service_worker_changes_with_the_page(bundled, tmp_path):
    """Another model is another version: browsers keep no old one."""
    versions = set()
    for method in ("fedslist", "fedease"):
        written(bundled(method), tmp_path / method)
        versions.add(re.search(r"\$\{OURS\}([0-9a-f]{16})`", (tmp_path / method / "sw.js").read_text())[1])
    assert len(versions) == 2
    json.loads((tmp_path / "fedslist" / "app.webmanifest").read_text())


def test_the_page_reads_all_methods_that_serve_from_histories():
    script = files("solera.device").joinpath("page_assets/app.js").read_text(encoding="utf-8")
    assert all(f"`{name}`" in script for name in FROM_HISTORY)


def test_a_page_uses_no_dates(bundled, tmp_path):
    """Neither model of a blend may need them."""
    bundle = Bundle.open(bundled("fedslist"))
    about = {each.name: getattr(bundle.manifest, each.name) for each in fields(ModelEntry)}
    second = SecondModel(**about | {"options": about["options"] | {"decay_days": 30.0}}, weight=0.3)
    bundle.manifest = replace(bundle.manifest, second=second)
    with pytest.raises(BundleError, match="'fedslist' was trained with decay_days"):
        write_page(bundle, tmp_path / "page")


def test_bundles_that_a_page_cannot_use(bundled, tmp_path, monkeypatch):
    with pytest.raises(BundleError, match="'fedmf' needs personal parameters") as error:
        written(bundled("fedmf"), tmp_path)
    assert "fedslist" in error.value.hint
    monkeypatch.setattr(pages, "MAX_BYTES", 1000)
    with pytest.raises(BundleError, match="holds at most 1,000") as error:
        written(bundled("fedslist"), tmp_path)
    assert "neighbours" in error.value.hint
    assert not list(tmp_path.iterdir())


def test_an_export_takes_the_publishers_catalogue(trained, data, keys, tmp_path):
    """Titles, years and genres of another file, in the order of the model's items."""
    ids = data.item_map.ids.tolist()
    items = [Item(id_, f"Title {id_}", 1999, ("Drama",)) for id_ in reversed(ids)]
    extra = Item("not seen by anybody", "Title", None)
    run, key = trained("fedslist").path, Path(f"{keys}.key")
    bundle = export(run, tmp_path / "own.bundle", key, items=[extra, *items], data=data)
    assert bundle.catalogue() == items[::-1]
    with pytest.raises(BundleError, match=f"no item '{ids[-1]}'"):
        export(run, tmp_path / "x.bundle", key, items=items[1:], data=data)


def test_the_command(bundled, keys, tmp_path):
    made = CliRunner().invoke(
        app,
        [
            "bundle",
            "page",
            str(bundled("fedslist")),
            "-o",
            str(tmp_path / "p"),
            "--key",
            f"{keys}.pub",
            "--json",
        ],
    )
    assert made.exit_code == 0, made.output
    said = json.loads(made.output)
    assert Path(said["page"]).stat().st_size == said["bytes"]
    (tmp_path / "file").touch()
    refused = CliRunner().invoke(
        app, ["bundle", "page", str(bundled("fedslist")), "-o", str(tmp_path / "file" / "p")]
    )
    assert refused.exit_code != 0
    assert "cannot be written" in f"{refused.output}{refused.exception}"
