"""Records of version 0.1 become records of today, with the same figures."""

from __future__ import annotations

import json
from typing import Any

import pytest
from benchmark import figures, made, ratings

from in_process import solera
from solera.bench.records import read_all, write
from solera.core.errors import RunError


def old_record(dataset: str, kind: str) -> dict[str, Any]:
    """As version 0.1 wrote it, with the ranks 1 and 11 of two users."""
    both = {"full": figures([1.0, 11.0]), "sampled99": figures([1.0, 1.0])}
    group = {"least": 3, "most": 9, "users": 2, "full": both["full"], "sampled99": both["sampled99"]}
    is_method = kind == "method"
    config = {"method": "fedmf", "rounds": 4} if is_method else {"baseline": "ease"}
    return {
        "format": 1,
        "label": "mine",
        "kind": kind,
        "preset": None,
        "dataset": "ratings",
        "protocol": "strict",
        "seed": 0,
        "config": config | {"dataset": dataset, "options": {}, "protocol": "strict", "seed": 0},
        "leaky": False,
        "environment": {"system": "Linux"},
        "code": {"commit": "c0ffee", "dirty": False},
        "figures": {"test": both, "validation": both},
        "by_activity": [group],
        "rounds": 4 if is_method else None,
        "selected_round": 3 if is_method else None,
        "seconds": {"total": 9.0, "per_round": 0.5 if is_method else None},
        "bytes": {"up": 1.0, "down": 2.0, "up_until_selected": 3.0, "down_until_selected": 6.0}
        if is_method
        else None,
        "peak_bytes": 7,
        "privacy": None,
        "counts": None,
        "ranks": [1, 11],
    }


@pytest.mark.parametrize("kind", ["method", "baseline"])
def test_an_old_record_is_read_after_it_was_migrated(tmp_path, kind):
    own = ratings(tmp_path)
    own.write_text(own.read_text().replace("who,what,when", "user,item,time"))
    path = tmp_path / "results" / "ratings" / "mine--strict--s0.json"
    path.parent.mkdir(parents=True)
    old = old_record(str(own), kind)
    path.write_text(json.dumps(old))
    new = made("x", [1.0])
    write(new, tmp_path / "results" / new.name)
    before = (tmp_path / "results" / new.name).read_bytes()
    with pytest.raises(RunError, match="not a record"):
        read_all(tmp_path / "results")
    done = solera("bench", "migrate", str(tmp_path / "results"), "--json")
    assert json.loads(done.stdout) == {"migrated": [str(path)]}
    assert (tmp_path / "results" / new.name).read_bytes() == before
    record = next(each for each in read_all(tmp_path / "results") if each.label == "mine")
    result = record.result
    assert (result.users, result.items) == (30, 40)
    assert (result.test.model_dump(exclude_none=True), record.ranks) == (old["figures"]["test"], (1.0, 11.0))
    assert (record.seconds, result.peak_bytes, record.code.commit) == (9.0, 7, "c0ffee")
    if kind == "method":
        assert (result.method, result.rounds, result.selected_round) == ("fedmf", 4, 3)
        assert (result.seconds_per_round, result.engine) == (0.5, "block")
        assert result.bytes.model_dump() == {"up": 1.0, "down": 2.0}
        assert record.bytes_until_selected.model_dump() == {"up": 3.0, "down": 6.0}
    else:
        assert (result.method, result.seconds_to_fit, result.bytes) == ("ease", 9.0, None)
    assert solera("bench", "migrate", str(tmp_path / "results")).stdout.startswith("0 records migrated")
