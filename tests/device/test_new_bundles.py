"""Bundles that a federation begins with, and goes on with: from a data set or a file of items."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("cryptography", reason="needs the device extra")

from in_process import run
from solera.core.errors import BundleError, ConfigError, DataError, DeviceError
from solera.device.bundle import Bundle, Item
from solera.device.device import Device
from solera.device.publish import read_items
from solera.federation.node.members import Members

ITEMS = 'id,title,year\n7,"Matrix, The",1999\nm-2,Alien,\n3,Heat (1995),1995\n'


@pytest.fixture
def items(tmp_path) -> Path:
    path = tmp_path / "items.csv"
    path.write_text(ITEMS)
    return path


def test_a_file_of_items(items, tmp_path):
    assert read_items(items) == [
        Item("7", "Matrix, The", 1999),
        Item("m-2", "Alien", None),
        Item("3", "Heat (1995)", 1995),
    ]
    other = tmp_path / "items.tsv"
    other.write_text("title\tid\nHeat (1995)\t3\nUp\t4\n")
    assert read_items(other) == [Item("3", "Heat (1995)", 1995), Item("4", "Up", None)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id,name\n1,A\n", "columns id, name"),
        ("id,title,genre\n1,A,B\n", "columns id, title, genre"),
        ("title,year\nA,1999\n", "columns title, year"),
        ("id,title\n1,A\n ,B\n", "line 3: the id in column 'id' is empty"),
        ("id,title\n1,A\n2, \n", "line 3: the title is empty"),
        ("id,title\n1,A\n2,B\n1,C\n", "line 4: item '1' stands in line 2 already"),
        ("id,title,year\n1,A,soon\n", "line 2: the year 'soon' is not a year"),
        ("id,title\n1,A,B\n", "line 2: 2 fields were expected"),
        ("id,title\n", "no rows"),
        ("", "is empty"),
    ],
)
def test_what_is_no_file_of_items(tmp_path, text, message):
    path = tmp_path / "items.csv"
    path.write_text(text)
    with pytest.raises(DataError) as error:
        read_items(path)
    assert message in error.value.message
    assert error.value.hint


def test_a_bundle_to_begin_with(items, keys, tmp_path):
    target = tmp_path / "films.bundle"
    made = json.loads(
        run(
            *("bundle", "new", "fedmf", "--catalogue", items, "-o", target, "--key", f"{keys}.key"),
            *(
                "--seed",
                5,
                "--precision",
                "double",
                "-O",
                "embedding_size=4",
                "--plugin",
                "row-mean",
                "--json",
            ),
        )
    )
    assert (made["items"], made["seed"], made["precision"]) == (3, 5, "double")
    assert (made["method"], made["plugins"]) == ("fedmf", ["row-mean"])
    assert made["options"]["embedding_size"] == 4
    assert made["trained"] == {}
    device = Device.create(tmp_path / "me", Bundle.open(target))
    device.add("m-2")
    with pytest.raises(DeviceError, match="the model of 'fedmf\\+row-mean' has not been trained yet"):
        device.recommend()
    device.close()
    shown = run("bundle", "new", "fedease", "--catalogue", items, "-o", target, "--key", f"{keys}.key")
    assert f"next: solera device init me --bundle {target}" in shown.replace("\n", "")


def test_the_items_of_ones_own_data(keys, tmp_path):
    rows = [f"{user},{item},{item},Film {item}" for user in "ab" for item in range(12)]
    data = tmp_path / "seen.csv"
    data.write_text("\n".join(["who,what,when,called", *rows]) + "\n")
    columns = ("--columns", "user=who,item=what,time=when,title=called")
    target = tmp_path / "films.bundle"
    run("bundle", "new", "fedmf", "--data", data, *columns, "-o", target, "--key", f"{keys}.key")
    assert Bundle.open(target).catalogue() == [Item(str(i), f"Film {i}", None) for i in range(12)]


def test_wrong_use(items, keys, tmp_path):
    rest = ("-o", tmp_path / "x.bundle", "--key", f"{keys}.key")
    with pytest.raises(ConfigError, match="needs exactly one list of items") as error:
        run("bundle", "new", "fedmf", *rest)
    assert "--catalogue items.csv" in error.value.hint
    with pytest.raises(ConfigError, match="needs exactly one list of items"):
        run("bundle", "new", "fedmf", "--catalogue", items, "--data", "ml-100k", *rest)
    with pytest.raises(ConfigError, match="unknown method 'fedfm'"):
        run("bundle", "new", "fedfm", "--catalogue", items, *rest)
    with pytest.raises(ConfigError, match="no option 'size'"):
        run("bundle", "new", "fedmf", "--catalogue", items, *rest, "-O", "size=4")
    with pytest.raises(DeviceError, match="by popularity"):
        run("bundle", "new", "fedmf", "--plugin", "popular-negatives", "--catalogue", items, *rest)
    assert not (tmp_path / "x.bundle").exists()


def test_a_catalogue_that_grows(items, keys, tmp_path):
    old, new, more = tmp_path / "1.bundle", tmp_path / "2.bundle", tmp_path / "more.csv"
    run("bundle", "new", "fedmf", "--catalogue", items, "-o", old, "--key", f"{keys}.key", "-O", "reg=0.5")
    more.write_text("id,title\n9,Up (2009)\n")
    extend = ("bundle", "extend", old, "--catalogue", more, "-o", new)
    made = json.loads(run(*extend, "--key", f"{keys}.key", "--json"))
    assert (made["catalogue_version"], made["items"], made["options"]["reg"]) == (2, 4, 0.5)
    assert [item.id for item in Bundle.open(new).catalogue()] == ["7", "m-2", "3", "9"]
    device = Device.create(tmp_path / "me", Bundle.open(old))
    device.update(new)
    assert device.catalogue.title("9") == "Up (2009)"
    device.close()

    more.write_text("id,title\n9,Up (2009)\nm-2,Alien\n")
    with pytest.raises(BundleError, match="item 'm-2' is already in the catalogue"):
        run(*extend, "--key", f"{keys}.key")
    more.write_text("id,title\n10,Big\n")
    other = json.loads(run("bundle", "keygen", "-o", tmp_path / "other", "--json"))
    with pytest.raises(BundleError, match="is not the key that signed"):
        run(*extend, "--key", other["key"])


def test_a_device_says_when_its_catalogue_is_old(items, keys, tmp_path):
    old, new, more = tmp_path / "1.bundle", tmp_path / "2.bundle", tmp_path / "more.csv"
    run("bundle", "new", "fedmf", "--catalogue", items, "-o", old, "--key", f"{keys}.key")
    more.write_text("id,title\n9,Up (2009)\n")
    run("bundle", "extend", old, "--catalogue", more, "-o", new, "--key", f"{keys}.key")
    me = tmp_path / "me"
    device = Device.create(me, Bundle.open(old))
    assert "solera device update" not in run("device", "status", me)
    Members(device).tell_newest(2)  # what an order of the server does
    device.close()
    assert json.loads(run("device", "status", me, "--json"))["newest_catalogue"] == 2
    told = run("device", "status", me).replace("\n", " ")
    assert "the federation has catalogue version 2" in told
    assert f"solera device update {me} --bundle FILE" in told
    run("device", "update", me, "--bundle", new)
    assert "solera device update" not in run("device", "status", me)
