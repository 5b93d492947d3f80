"""What a server tells Prometheus is what its folder says."""

from __future__ import annotations

import json
import logging
import sys
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from solera.federation.common.json_log import JsonLines
from solera.federation.common.protocol import Reason
from solera.federation.operate.metrics import serving
from solera.federation.operate.processes import free_port


def scrape(port: int) -> dict[tuple[str, str], float]:
    """Every sample, by its name and its label."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    return {
        (sample.name, "".join(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_figures_are_the_folders(local):
    federation = local("fedmf", {"embedding_size": 4}, min_replies=0.9)
    port = free_port()
    with serving(federation.server.path, port):
        empty = scrape(port)
        assert empty["solera_rounds_done", ""] == empty["solera_replies_total", ""] == 0
        federation.round()
        federation.tamper = lambda node, kind, packet: None if node == 101 else packet
        assert federation.round() is None  # 7 of 11 users are too few
        federation.tamper = lambda node, kind, packet: packet
        federation.round(attempt=1)
        found = scrape(port)
    rounds = federation.server.lines("history.jsonl")
    assert [line["round"] for line in rounds] == [1, 2]
    assert found["solera_rounds_done", ""] == 2
    assert found["solera_rounds_planned", ""] == 3
    assert found["solera_last_round_users", ""] == found["solera_last_round_users_wanted", ""] == 11
    assert found["solera_last_round_nodes", ""] == 3
    assert found["solera_replies_total", ""] == 6
    for direction in ("up", "down"):
        assert found["solera_bytes_total", direction] == sum(line["bytes"][direction] for line in rounds) > 0
    assert found["solera_round_seconds_count", ""] == 2
    assert found["solera_round_seconds_sum", ""] == pytest.approx(sum(line["seconds"] for line in rounds))
    assert found["solera_last_round_timestamp_seconds", ""] == rounds[-1]["time"]
    assert found["solera_void_rounds_total", ""] == 1
    assert {reason: found["solera_rejected_total", reason] for reason in Reason} == {
        reason: float(reason is Reason.NO_REPLY) for reason in Reason
    }
    assert found["solera_enrolled_nodes", ""] == 3
    assert found["solera_enrolled_users", ""] == 11


def test_every_reason_is_counted(local):
    federation = local("fedmf", {"embedding_size": 4})
    for reason in Reason:
        federation.coordinator.reject(100, reason, "for the test")
    port = free_port()
    with serving(federation.server.path, port):
        found = scrape(port)
    assert all(found["solera_rejected_total", reason] == 1 for reason in Reason)
    with pytest.raises(OSError, match="refused"):
        scrape(port)


def test_a_log_record_is_one_line_of_json():
    try:
        raise ValueError("the cat\nsat")
    except ValueError:
        record = logging.LogRecord(
            "solera.node", logging.ERROR, "f", 1, "no answer to %s", ("t",), sys.exc_info()
        )
    line = JsonLines().format(record)
    assert "\n" not in line
    found = json.loads(line)
    assert (found["level"], found["logger"], found["message"]) == ("error", "solera.node", "no answer to t")
    assert found["time"] == pytest.approx(record.created, abs=0.001)
    assert "ValueError: the cat" in found["traceback"]
