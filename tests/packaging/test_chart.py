"""The Helm chart: its values have a schema, and what Helm makes of it calls commands that exist."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from command_lines import check_command

from solera import __version__

CHART = Path(__file__).parents[2] / "packaging" / "helm" / "solera"
NODE = ["--set", "node.enabled=true", "--set", "node.server=films.example.org:8000"]

needs_helm = pytest.mark.skipif(shutil.which("helm") is None, reason="needs helm")


def values() -> dict[str, Any]:
    return yaml.safe_load((CHART / "values.yaml").read_text())


def check(found: dict[str, Any]) -> None:
    jsonschema.validate(found, json.loads((CHART / "values.schema.json").read_text()))


def test_the_values_fit_their_schema():
    check(values())


@pytest.mark.parametrize(
    ("part", "key", "value"),
    [
        ("node", "enabled", True),  # without an address of the server
        ("node", "server", "https://films.example.org"),
        ("server", "service", "Loadbalancer"),
        ("server", "nodes", ["../ca.key"]),
        ("server", "replicas", 2),
        ("server", "workers", 2),  # without PostgreSQL
        ("nginx", "image", ""),
        ("serve", "settings", ""),
    ],
)
def test_wrong_values_do_not(part, key, value):
    found = values()
    found[part][key] = value
    with pytest.raises(jsonschema.ValidationError):
        check(found)


def test_the_chart_is_for_this_version():
    assert yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"] == __version__


def helm(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["helm", *words], capture_output=True, text=True, check=False, timeout=60)


def rendered(*options: str) -> dict[tuple[str, str], dict[str, Any]]:
    done = helm("template", "films", str(CHART), *options)
    assert done.returncode == 0, done.stderr
    return {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(done.stdout)}


@needs_helm
def test_helm_takes_the_chart():
    done = helm("lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout
    assert "server" in helm("lint", "--strict", str(CHART), "--set", "node.enabled=true").stdout


@needs_helm
def test_only_what_is_wanted_is_made():
    off = ["--set", "server.enabled=false"]
    assert set(rendered(*off, *NODE)) == {
        ("PersistentVolumeClaim", "films-node"),
        ("Deployment", "films-node"),
    }
    server = rendered("--set", "serve.enabled=false", "--set", "server.metrics=false")
    kinds = {"PersistentVolumeClaim", "Service", "Deployment"}
    assert set(server) == {(kind, "films-server") for kind in kinds} | {("ConfigMap", "films-server-nginx")}
    containers = server["Deployment", "films-server"]["spec"]["template"]["spec"]["containers"]
    assert [each["name"] for each in containers] == ["server", "nginx"]


@needs_helm
def test_pods_call_commands_and_mount_volumes_that_exist():
    made = rendered(*NODE, "--set", "node.join=true", "--set", "server.nodes={node-1,node-2}")
    for name, containers in (("films-server", 3), ("films-node", 2)):
        spec = made["Deployment", name]["spec"]
        assert spec["replicas"] == 1
        assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]
        pod = spec["template"]["spec"]
        volumes = {volume["name"] for volume in pod["volumes"]}
        programs = [*pod.get("initContainers", ()), *pod["containers"]]
        assert len(programs) == containers
        for program in programs:
            assert {mount["name"] for mount in program["volumeMounts"]} <= volumes
            if program["name"] == "nginx":
                continue
            words = list(program["args"])
            if program.get("command") == ["sh", "-c"]:
                words = words[0].split("|| solera ")[1].split()
            check_command(words)
    keys = made["Deployment", "films-server"]["spec"]["template"]["spec"]["volumes"][1]["secret"]["items"]
    assert {"key": "node-2.pub", "path": "nodes/node-2.pub"} in keys


@needs_helm
def test_nginx_is_in_front():
    """With the files that are tested on their own, for the chart's folder and port."""
    made = rendered("--set", "server.folder=books", "--set", "server.port=8443")
    given = made["ConfigMap", "films-server-nginx"]["data"]
    files = {path.name: path.read_text() for path in (CHART / "nginx").iterdir()}
    changed = files["solera.conf"].replace("/films/", "/books/").replace("8000", "8443")
    assert given == files | {"solera.conf": changed}
    pod = made["Deployment", "films-server"]["spec"]["template"]["spec"]
    server, nginx = pod["containers"][:2]
    mounts = [{each["mountPath"]: each["name"] for each in one["volumeMounts"]} for one in (server, nginx)]
    assert "--socket=/run/solera/server.sock" in server["args"]
    assert mounts[0]["/run/solera"] == mounts[1]["/run/solera"] == "socket"
    assert mounts[0]["/data"] == mounts[1]["/var/lib/solera"] == "data"
    assert nginx["ports"] == [{"name": "nodes", "containerPort": 8443}]
    assert "unix:/run/solera/server.sock" in changed
    assert nginx["command"][:3] == ["nginx", "-c", "/etc/nginx/solera/nginx.conf"]


@needs_helm
def test_a_database_is_named_by_its_secret():
    def variables(*options: str) -> list[dict[str, Any]]:
        pod = rendered(*options)["Deployment", "films-server"]["spec"]["template"]["spec"]
        return pod["containers"][0].get("env", [])

    [given] = variables("--set", "server.database=pg", "--set", "server.workers=2")
    assert given["name"] == "SOLERA_DATABASE"
    assert given["valueFrom"] == {"secretKeyRef": {"name": "pg", "key": "url"}}
    assert variables() == []
