"""Metrics of a federation for Prometheus, read from its folder on every request.

Nothing is counted here: history.jsonl and events.jsonl are what is told, so that a restart loses nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from solera.core.errors import ConfigError
from solera.deploy.common.protocol import Reason
from solera.deploy.operate.control import Nodes
from solera.deploy.operate.processes import check_port
from solera.deploy.server.folder import FederationFolder

try:
    from prometheus_client import CollectorRegistry, Gauge, start_http_server
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        Metric,
        SummaryMetricFamily,
    )
    from prometheus_client.registry import Collector
except ImportError:
    raise ConfigError("metrics need prometheus_client", "pip install 'solera[deploy]'") from None

PORT = 9464


class FolderCollector(Collector):
    """Metrics read from a federation's folder."""

    def __init__(self, path: Path) -> None:
        self._folder = FederationFolder(path)

    def collect(self) -> Iterator[Metric]:
        """Collect the current metrics."""
        yield from self._of_rounds()
        yield from self._of_events()

    def _of_rounds(self) -> Iterator[Metric]:
        rounds = self._folder.lines("history.jsonl")
        last = rounds[-1] if rounds else {}
        for name, about, key in (
            ("rounds_done", "Rounds that counted", "round"),
            ("rounds_planned", "Rounds the federation takes", "rounds"),
            ("last_round_users", "Users whose updates the last round took", "clients"),
            ("last_round_users_wanted", "Users the last round wanted", "wanted"),
            ("last_round_nodes", "Nodes whose replies the last round took", "nodes"),
            ("last_round_seconds", "Seconds the last round took", "seconds"),
            ("last_round_timestamp_seconds", "When the last round ended, Unix time", "time"),
        ):
            yield GaugeMetricFamily(f"solera_{name}", about, value=last.get(key, 0))
        replies = sum(line["nodes"] for line in rounds)
        yield CounterMetricFamily("solera_replies", "Replies of nodes that were taken", value=replies)
        traffic = CounterMetricFamily(
            "solera_bytes", "Bytes of arrays, from nodes (up) and to them (down)", labels=["direction"]
        )
        for direction in ("up", "down"):
            traffic.add_metric([direction], sum(line["bytes"][direction] for line in rounds))
        yield traffic
        seconds = sum(line["seconds"] for line in rounds)
        yield SummaryMetricFamily("solera_round_seconds", "Seconds of rounds", len(rounds), seconds)

    def _of_events(self) -> Iterator[Metric]:
        events = self._folder.lines("events.jsonl")
        kinds = Counter(line["event"] for line in events)
        yield CounterMetricFamily("solera_void_rounds", "Rounds with too few replies", value=kinds["void"])
        runs = CounterMetricFamily("solera_runs", "Runs started, finished, failed", labels=["event"])
        for kind in ("started", "finished", "failed"):
            runs.add_metric([kind], kinds[kind])
        yield runs
        reasons = Counter(line["reason"] for line in events if line["event"] == "rejected")
        rejected = CounterMetricFamily("solera_rejected", "What was not taken, by reason", labels=["reason"])
        for reason in Reason:
            rejected.add_metric([reason], reasons[reason])
        yield rejected
        users = {line["node"]: line["users"] for line in events if line["event"] == "enrolled"}
        yield GaugeMetricFamily("solera_enrolled_nodes", "Nodes that ever enrolled", value=len(users))
        about = "Users of all nodes when they enrolled"
        yield GaugeMetricFamily("solera_enrolled_users", about, value=sum(users.values()))


class Exporter:
    """What is served: the folder's figures, and how many nodes are there."""

    def __init__(self, path: Path) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(FolderCollector(path))
        self._nodes = Gauge("solera_nodes", "Nodes the server knows", ["state"], registry=self.registry)

    def tell(self, nodes: Nodes) -> None:
        """Note how many nodes are registered and online."""
        self._nodes.labels("registered").set(nodes.registered)
        self._nodes.labels("online").set(nodes.online)


@contextmanager
def serving(path: Path, port: int, host: str = "127.0.0.1") -> Iterator[Exporter]:
    """Answer Prometheus at http://host:port/metrics until the block is left."""
    check_port(host, port)
    exporter = Exporter(path)
    server, thread = start_http_server(port, host, exporter.registry)
    try:
        yield exporter
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
