"""A real Prometheus against the real exporter: every query of the dashboard, and every alert, both ways."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from pathlib import Path

import pytest
import yaml
from prometheus_client import generate_latest

from solera.federation.common.authority import make_keys
from solera.federation.operate.metrics import Exporter, serving
from solera.federation.operate.processes import Process, free_port
from solera.federation.server.gate import Tally
from solera.federation.server.serve import Serving
from solera.federation.server.versions import Versions
from solera.federation.web.store import Nodes

MONITORING = Path(__file__).parents[2] / "packaging" / "monitoring"
ALERTS, DASHBOARD = MONITORING / "alerts.yml", MONITORING / "dashboard.json"
RUNBOOK = Path(__file__).parents[2] / "docs" / "federation" / "runbook.md"
real = pytest.mark.skipif(
    shutil.which("prometheus") is None or shutil.which("promtool") is None,
    reason="needs prometheus and promtool (apt-get install prometheus)",
)


def rules() -> list[dict]:
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def queries() -> list[str]:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel["targets"]]


@pytest.fixture
def served(local) -> Path:
    """A served federation that has trained, evaluated and published, and that has a privacy budget."""
    made = local("fedmf", {"embedding_size": 4})
    made.run(2)
    path, state = made.server.path, made.coordinator.state
    versions = Versions(path)
    for number in (1, 2):
        version = versions.add(state.shared, state.held, round_=number, catalogue=1, time=time.time())
        versions.note(version, tally=Tally(users=100, yes=40, epsilon=2.0))
    versions.publish(1, time.time())
    versions.try_out(2, time.time())
    for outcome in ("published", "canary", "rolled back"):
        made.server.event("version", version=1, outcome=outcome, reason="for the test")
    Serving(
        born=1.0,
        beat=time.time(),
        last_start=time.time(),
        next_due=time.time() + 60,
        last_success=time.time(),
        online=3,
        smallest_cohort=2,
        evaluations=1,
        evaluation_epsilon=2.0,
    ).write(path)
    return path


def exposed(path: Path) -> set[str]:
    """The names of all samples."""
    exporter = Exporter(path, certificate_in(path))
    exporter.tell(Nodes(registered=4, online=3))
    text = generate_latest(exporter.registry).decode()
    return {re.split(r"[{ ]", line)[0] for line in text.splitlines() if line and not line.startswith("#")}


def certificate_in(path: Path) -> Path:
    """A server's certificate, valid for a year."""
    make_keys(path / "keys", 0)
    return path / "keys" / "server.pem"


def test_alerts_and_dashboard_name_metrics_that_exist(served):
    known = exposed(served)
    for text in [*queries(), *(rule["expr"] for rule in rules())]:
        named = set(re.findall(r"\bsolera_\w+", text))
        assert named <= known, text
    assert {"solera_epsilon", "solera_round_duration_seconds_bucket", "solera_versions_total"} <= known


def test_every_alert_has_a_section_in_the_runbook():
    headings = re.findall(r"^#+ (.+)$", RUNBOOK.read_text(), flags=re.MULTILINE)
    anchors = {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    for rule in rules():
        page, _, anchor = rule["annotations"]["runbook"].partition("#")
        assert (page, anchor in anchors) == ("docs/federation/runbook.md", True), rule["alert"]


def test_a_federation_without_a_schedule_has_metrics_too(local):
    made = local("fedmf", {"embedding_size": 4})
    assert "solera_serving_state" not in exposed(made.server.path)
    assert "solera_rounds_done" in exposed(made.server.path)


def test_a_scrape_reads_only_what_was_added_and_a_restored_folder_anew(local):
    made = local("fedmf", {"embedding_size": 4})
    registry = Exporter(made.server.path).registry
    made.run(2)
    assert registry.get_sample_value("solera_round_seconds_count") == 2
    made.round()
    assert registry.get_sample_value("solera_round_seconds_count") == 3
    assert registry.get_sample_value("solera_round_duration_seconds_bucket", {"le": "+Inf"}) == 3
    history = made.server.path / "history.jsonl"
    history.write_text(history.read_text().splitlines(keepends=True)[0])
    assert registry.get_sample_value("solera_round_seconds_count") == 1


def test_epsilon_grows_with_the_rounds_up_to_the_whole(local):
    pytest.importorskip("dp_accounting")
    from solera.dp.settings import DP

    made = local("fedmf", {"embedding_size": 4}, rounds=2, dp=DP.parse("noise=2,delta=1e-5,clip=1"))
    registry = Exporter(made.server.path).registry
    seen = [registry.get_sample_value("solera_epsilon", {"kind": "spent"})]
    for _ in range(2):
        made.round()
        seen.append(registry.get_sample_value("solera_epsilon", {"kind": "spent"}))
    total = registry.get_sample_value("solera_epsilon", {"kind": "total"})
    assert seen[0] == 0 < seen[1] < seen[2] == pytest.approx(total, rel=1e-6)


@real
@pytest.mark.slow
def test_the_alert_rules_are_valid_and_fire(tmp_path):
    """Each rule is given one series of figures that must make it fire, and one that must not."""
    state = 'solera_serving_state{{job="solera",instance="a",state="{}"}}'
    beat = 'solera_serving_beat_timestamp_seconds{job="solera",instance="a"}'
    rejected = 'solera_rejected_total{job="solera",instance="a",reason="shapes"}'
    replies = 'solera_replies_total{job="solera",instance="a"}'
    due = 'solera_next_due_timestamp_seconds{job="solera",instance="a"}'
    expires = 'solera_certificate_expires_timestamp_seconds{job="solera",instance="a"}'
    bad = {
        "SoleraServerDown": {'up{job="solera",instance="a"}': "0x200"},
        "SoleraCertificateExpires": {expires: "100000x200"},  # of 190 minutes after the beginning
        "SoleraLoopSilent": {beat: "0x200", state.format("waiting"): "1x200"},
        "SoleraNotServed": {state.format("stopped"): "1x200"},
        "SoleraTooFewNodes": {
            'solera_nodes{job="solera",instance="a",state="online"}': "1x200",
            'solera_smallest_cohort{job="solera",instance="a"}': "2x200",
        },
        "SoleraRunsFail": {'solera_failed_runs_in_a_row{job="solera",instance="a"}': "2x200"},
        "SoleraRunsSkipped": {'solera_runs_total{job="solera",instance="a",event="skipped"}': "0+1x200"},
        "SoleraOverdue": {due: "0x200", state.format("too few nodes"): "1x200"},
        "SoleraRepliesRejected": {rejected: "0+1x200", replies: "0+5x200"},
        "SoleraVoidRounds": {'solera_void_rounds_total{job="solera",instance="a"}': "0+1x200"},
        "SoleraVersionRejected": {
            'solera_versions_total{job="solera",instance="a",outcome="rolled back"}': "0x50 2x149"
        },
        "SoleraPrivacyBudgetLow": {
            'solera_epsilon{job="solera",instance="a",kind="spent"}': "7.5x200",
            'solera_epsilon{job="solera",instance="a",kind="total"}': "8x200",
        },
    }
    good = {
        'up{job="solera",instance="a"}': "1x200",
        expires: "2000000x200",
        beat: "0+60x200",
        state.format("waiting"): "1x200",
        state.format("stopped"): "0x200",
        'solera_nodes{job="solera",instance="a",state="online"}': "3x200",
        'solera_smallest_cohort{job="solera",instance="a"}': "2x200",
        'solera_failed_runs_in_a_row{job="solera",instance="a"}': "1x200",
        'solera_runs_total{job="solera",instance="a",event="skipped"}': "0x200",
        due: "20000x200",
        rejected: "0x200",
        replies: "0+5x200",
        'solera_void_rounds_total{job="solera",instance="a"}': "0x200",
        'solera_versions_total{job="solera",instance="a",outcome="rolled back"}': "0x200",
        'solera_epsilon{job="solera",instance="a",kind="spent"}': "4x200",
        'solera_epsilon{job="solera",instance="a",kind="total"}': "8x200",
    }
    assert set(bad) == {rule["alert"] for rule in rules()}
    shutil.copy(ALERTS, tmp_path)

    def verdict(name: str, series: dict[str, str]) -> bool:
        """Whether the alert fires at minute 190."""
        test = {
            "interval": "1m",
            "input_series": [{"series": key, "values": values} for key, values in series.items()],
            "alert_rule_test": [{"eval_time": "190m", "alertname": name, "exp_alerts": []}],
        }
        document = {"rule_files": ["alerts.yml"], "evaluation_interval": "1m", "tests": [test]}
        (tmp_path / "test.yml").write_text(yaml.safe_dump(document))
        command = ["promtool", "test", "rules", str(tmp_path / "test.yml")]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert "parse error" not in done.stderr, done.stderr
        return done.returncode != 0

    for name, series in bad.items():
        assert verdict(name, series), f"{name} does not fire"
        assert not verdict(name, good), f"{name} fires without a reason"


def ask(port: int, path: str, **arguments: str) -> dict:
    url = f"http://127.0.0.1:{port}/api/v1/{path}?{urllib.parse.urlencode(arguments)}"
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)["data"]


@real
@pytest.mark.slow
def test_a_real_prometheus_answers_every_query(served, tmp_path):
    port, exporter_port = free_port(), free_port()
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(ALERTS)],
        "scrape_configs": [
            {"job_name": "solera", "static_configs": [{"targets": [f"127.0.0.1:{exporter_port}"]}]}
        ],
    }
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    with serving(served, exporter_port, certificate=certificate_in(served)) as exporter:
        exporter.tell(Nodes(registered=4, online=3))
        command = ["prometheus", f"--config.file={tmp_path}/prometheus.yml"]
        command += [f"--storage.tsdb.path={tmp_path}/data", f"--web.listen-address=127.0.0.1:{port}"]
        process = Process(command, {}, tmp_path / "prometheus.log")
        try:
            _until_scraped(process, port)
            instance = f"127.0.0.1:{exporter_port}"
            empty = []
            for query in queries():
                found = ask(port, "query", query=query.replace("$instance", instance))["result"]
                empty += [] if found else [query]
            # Nothing was rejected, so that panel is empty.
            assert [query for query in empty if "solera_rejected_total" not in query] == []
            groups = ask(port, "rules")["groups"]
            health = {rule["name"]: rule["health"] for group in groups for rule in group["rules"]}
            assert health == {rule["alert"]: "ok" for rule in rules()}
            alerts = ask(port, "alerts")["alerts"]
            assert {alert["labels"]["alertname"] for alert in alerts} == set(), alerts
        finally:
            process.stop()


def _until_scraped(process: Process, port: int) -> None:
    """Wait until it has scraped a few times, so that rates are known, and evaluated all rules."""
    end = time.monotonic() + 90
    while time.monotonic() < end:
        assert process.is_running, process.said()
        try:
            values = ask(port, "query", query="count_over_time(solera_rounds_done[1m]) >= 4")["result"]
            groups = ask(port, "rules")["groups"]
            if values and groups and all(r["health"] == "ok" for g in groups for r in g["rules"]):
                return
        except OSError:
            pass
        time.sleep(0.5)
    raise AssertionError(process.said()[-2000:])
