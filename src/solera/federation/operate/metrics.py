"""Metrics of a federation for Prometheus, read from its folder on every request.

Nothing is counted here: history.jsonl, events.jsonl, serving.json and versions/ are what is told, so that a
restart loses nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import get_args

from solera.core.errors import ConfigError
from solera.federation.common.authority import read_certificate
from solera.federation.common.protocol import Reason
from solera.federation.operate.figures import BUCKETS, Counts, Figures
from solera.federation.operate.processes import check_port
from solera.federation.server.serve import State
from solera.federation.web.store import Nodes

try:
    from prometheus_client import CollectorRegistry, Gauge, start_http_server
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
        Metric,
        SummaryMetricFamily,
    )
    from prometheus_client.registry import Collector
except ImportError:
    raise ConfigError("metrics need prometheus_client", "pip install 'solera[server]'") from None

PORT = 9464
_OUTCOMES = ("published", "canary", "rejected", "rolled back")


class FolderCollector(Collector):
    """Metrics read from a federation's folder."""

    def __init__(self, path: Path) -> None:
        self._figures = Figures(path)

    def collect(self) -> Iterator[Metric]:
        """Collect the current metrics."""
        counts = self._figures.counts()
        yield from _of_rounds(counts)
        yield from _of_events(counts)
        yield from self._of_privacy()
        yield from self._of_serving()
        yield from self._of_versions(counts)

    def _of_privacy(self) -> Iterator[Metric]:
        about = "Epsilon: spent until now, of all rounds, and of evaluations of a user who was always asked"
        epsilon = GaugeMetricFamily("solera_epsilon", about, labels=["kind"])
        if (found := self._figures.epsilon()) is not None:
            epsilon.add_metric(["spent"], found[0])
            epsilon.add_metric(["total"], found[1])
        if (serving := self._figures.serving()) is not None:
            epsilon.add_metric(["evaluations"], serving.evaluation_epsilon)
        yield epsilon

    def _of_serving(self) -> Iterator[Metric]:
        serving = self._figures.serving()
        if serving is None:
            return
        state = GaugeMetricFamily("solera_serving_state", "1 for the state of the loop", labels=["state"])
        for each in get_args(State):
            state.add_metric([each], serving.state == each)
        yield state
        for name, about, value in (
            ("serving_beat_timestamp_seconds", "When the loop last looked, Unix time", serving.beat),
            ("next_due_timestamp_seconds", "When the next run is due, Unix time", serving.next_due),
            ("last_success_timestamp_seconds", "When a run last ended well, Unix time", serving.last_success),
            ("failed_runs_in_a_row", "Runs that failed since the last success", serving.failures),
            ("smallest_cohort", "Nodes that must be online before a round", serving.smallest_cohort),
            ("serving_online_nodes", "Nodes that the loop sees online", serving.online),
        ):
            yield GaugeMetricFamily(f"solera_{name}", about, value=value or 0)

    def _of_versions(self, counts: Counts) -> Iterator[Metric]:
        versions = self._figures.versions()
        standing = versions.standing
        place = GaugeMetricFamily("solera_version", "Number of a version, by its place", labels=["place"])
        hits = GaugeMetricFamily(
            "solera_hit_rate", "Hit rate in the evaluation of a version", labels=["place"]
        )
        error = GaugeMetricFamily("solera_hit_rate_error", "Its standard error", labels=["place"])
        for name, number in (("published", standing.published), ("canary", standing.canary)):
            place.add_metric([name], number or 0)
            tally = versions.get(number).tally if number else None
            if tally is not None:
                hits.add_metric([name], tally.rate)
                error.add_metric([name], tally.error)
        yield place
        yield hits
        yield error
        made = CounterMetricFamily("solera_versions", "Versions by what became of them", labels=["outcome"])
        for outcome in _OUTCOMES:
            made.add_metric([outcome], counts.outcomes[outcome])
        yield made


def _of_rounds(counts: Counts) -> Iterator[Metric]:
    for name, about, key in (
        ("rounds_done", "Rounds that counted", "round"),
        ("rounds_planned", "Rounds the federation takes", "rounds"),
        ("last_round_users", "Users whose updates the last round took", "clients"),
        ("last_round_users_wanted", "Users the last round wanted", "wanted"),
        ("last_round_nodes", "Nodes whose replies the last round took", "nodes"),
        ("last_round_seconds", "Seconds the last round took", "seconds"),
        ("last_round_timestamp_seconds", "When the last round ended, Unix time", "time"),
    ):
        yield GaugeMetricFamily(f"solera_{name}", about, value=counts.last.get(key, 0))
    yield CounterMetricFamily("solera_replies", "Replies of nodes that were taken", value=counts.replies)
    about = "Bytes of arrays, from nodes (up) and to them (down)"
    traffic = CounterMetricFamily("solera_bytes", about, labels=["direction"])
    for direction in ("up", "down"):
        traffic.add_metric([direction], counts.bytes[direction])
    yield traffic
    yield SummaryMetricFamily("solera_round_seconds", "Seconds of rounds", counts.rounds, counts.seconds)
    limits = [*map(str, BUCKETS), "+Inf"]
    buckets = list(zip(limits, map(float, accumulate(counts.by_duration)), strict=True))
    yield HistogramMetricFamily(
        "solera_round_duration_seconds", "Rounds by their seconds", buckets, counts.seconds
    )


def _of_events(counts: Counts) -> Iterator[Metric]:
    kinds = counts.events
    yield CounterMetricFamily("solera_void_rounds", "Rounds with too few replies", value=kinds["void"])
    runs = CounterMetricFamily("solera_runs", "Runs started, finished, failed, skipped", labels=["event"])
    for kind in ("started", "finished", "failed", "skipped"):
        runs.add_metric([kind], kinds[kind])
    yield runs
    rejected = CounterMetricFamily("solera_rejected", "What was not taken, by reason", labels=["reason"])
    for reason in Reason:
        rejected.add_metric([reason], counts.rejected[reason])
    yield rejected
    yield GaugeMetricFamily("solera_enrolled_nodes", "Nodes that ever enrolled", value=len(counts.users))
    about = "Users of all nodes when they enrolled"
    yield GaugeMetricFamily("solera_enrolled_users", about, value=sum(counts.users.values()))


class Exporter:
    """What is served: the folder's figures, and how many nodes are there."""

    def __init__(self, path: Path, certificate: Path | None = None) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(FolderCollector(path))
        if certificate is not None:
            about = "When the server's certificate expires, Unix time"
            expires = Gauge("solera_certificate_expires_timestamp_seconds", about, registry=self.registry)
            expires.set_function(lambda: _expiry(certificate))
        self._nodes = Gauge("solera_nodes", "Nodes the server knows", ["state"], registry=self.registry)

    def tell(self, nodes: Nodes) -> None:
        """Note how many nodes are registered and online."""
        self._nodes.labels("registered").set(nodes.registered)
        self._nodes.labels("online").set(nodes.online)


def _expiry(certificate: Path) -> float:
    """The file is read each time: it may have been replaced."""
    return read_certificate(certificate).not_valid_after_utc.timestamp()


@contextmanager
def serving(
    path: Path, port: int, host: str = "127.0.0.1", certificate: Path | None = None
) -> Iterator[Exporter]:
    """Answer Prometheus at http://host:port/metrics until the block is left."""
    check_port(host, port)
    exporter = Exporter(path, certificate)
    server, thread = start_http_server(port, host, exporter.registry)
    try:
        yield exporter
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
