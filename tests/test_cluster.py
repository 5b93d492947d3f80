"""The files for Slurm and Kubernetes: nobody ran them here, but what can be checked without a cluster is.

There is no schema of Kubernetes in the repository. These checks are written by hand: that the parts of the
manifest name each other rightly, and that torchrun and solera take the arguments that they are given.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from torch.distributed.run import get_args_parser

from solera.cli import app
from solera.cli.lazy import subcommands

CLUSTER = Path(__file__).parent.parent / "packaging" / "cluster"
ECHO = "import json, sys; print(json.dumps(sys.argv[1:]))"
SLURM, KUBERNETES = CLUSTER / "train.sbatch", CLUSTER / "train.yaml"


@pytest.fixture(scope="module")
def parts() -> dict[str, Any]:
    found = list(yaml.safe_load_all(KUBERNETES.read_text(encoding="utf-8")))
    return {each["kind"]: each for each in found}


@pytest.fixture
def pod(parts) -> dict[str, Any]:
    return parts["Job"]["spec"]["template"]["spec"]


@pytest.fixture
def container(pod) -> dict[str, Any]:
    (only,) = pod["containers"]
    return only


def environment(container) -> dict[str, Any]:
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in container["env"]}


def taken(command: list[str]) -> tuple[Any, dict[str, Any]]:
    """What torchrun and `solera train` make of a command; both refuse what they do not know."""
    given = get_args_parser().parse_args(command)
    assert given.module
    assert given.training_script == "solera"
    name, *rest = given.training_script_args
    program: Any = typer.main.get_command(app)
    return given, subcommands(program)[name].make_context(name, rest).params


def test_the_kinds_and_their_versions(parts):
    assert {kind: each["apiVersion"] for kind, each in parts.items()} == {
        "Service": "v1",
        "NetworkPolicy": "networking.k8s.io/v1",
        "PersistentVolumeClaim": "v1",
        "Job": "batch/v1",
    }


def test_pods_find_each_other(parts, pod):
    """An Indexed Job calls its pods JOB-INDEX, and its headless Service gives them these names."""
    job, service = parts["Job"], parts["Service"]
    assert job["spec"]["completionMode"] == "Indexed"
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert service["spec"]["selector"] == {"job-name": job["metadata"]["name"]}
    assert pod["subdomain"] == service["metadata"]["name"]
    assert pod["restartPolicy"] == "Never"


def test_nobody_else_reaches_the_pods(parts):
    """torchrun has no authentication."""
    spec, own = parts["NetworkPolicy"]["spec"], {"job-name": parts["Job"]["metadata"]["name"]}
    assert spec["podSelector"] == {"matchLabels": own}
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    pods = [{"podSelector": {"matchLabels": own}}]
    names = [{"port": 53, "protocol": protocol} for protocol in ("UDP", "TCP")]
    assert spec["ingress"] == [{"from": pods}]
    assert spec["egress"] == [{"to": pods}, {"ports": names}]


def test_every_pod_is_waited_for(parts, container):
    spec, given = parts["Job"]["spec"], environment(container)
    assert spec["completions"] == spec["parallelism"] == int(given["NODES"])
    assert container["resources"]["requests"]["cpu"] == given["RANKS"]
    assert container["resources"]["requests"]["memory"] == container["resources"]["limits"]["memory"]
    assert given["POD_IP"] == {"fieldRef": {"fieldPath": "status.podIP"}}


@pytest.mark.parametrize("index", [0, 3])
def test_the_manifests_command_is_one_that_torchrun_and_solera_take(parts, container, index, tmp_path):
    """The script is run for one pod, with a torchrun that writes down how it was called."""
    bash, how, script = container["command"]
    assert (bash, how) == ("bash", "-euc")
    fake = tmp_path / "torchrun"
    fake.write_text(f"#!{sys.executable}\n{ECHO}\n")
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    given = environment(container) | {"POD_IP": "10.0.0.7", "JOB_COMPLETION_INDEX": str(index)}
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euc", script], env={**given, "PATH": path}, capture_output=True, text=True, check=True
    )
    found, train = taken(json.loads(done.stdout))
    job, service = parts["Job"], parts["Service"]
    first = f"{job['metadata']['name']}-0.{service['metadata']['name']}"
    assert found.rdzv_endpoint == f"{first}:{service['spec']['ports'][0]['port']}"
    assert (found.nnodes, found.nproc_per_node, found.rdzv_backend) == ("4", "8", "c10d")
    assert found.rdzv_conf == f"is_host={int(index == 0)}"
    assert found.local_addr == "10.0.0.7"
    (mounted,) = container["volumeMounts"]
    assert str(train["out_dir"]).startswith(mounted["mountPath"])
    assert train["data"].startswith(mounted["mountPath"])
    assert train["resume"]  # of a pod that is started again


def test_data_and_run_are_on_a_volume_that_all_pods_write_to(parts, pod, container):
    claim = parts["PersistentVolumeClaim"]
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    (volume,) = pod["volumes"]
    assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    assert [each["name"] for each in container["volumeMounts"]] == [volume["name"]]


def test_there_are_no_secrets_and_no_rights(pod, container):
    text = KUBERNETES.read_text(encoding="utf-8").lower()
    assert not re.search(r"secret|password|privileged: true|hostnetwork|hostpath", text)
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    assert "example.org" in container["image"]


def test_the_slurm_script_is_a_shell_script():
    done = subprocess.run(["bash", "-n", str(SLURM)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert SLURM.stat().st_mode & stat.S_IXUSR


def test_the_slurm_script_starts_the_ranks_of_every_machine(tmp_path):
    """Run with stand-ins for Slurm's programs: `srun` starts its command once."""
    stand_ins = {
        "scontrol": "printf 'c1\\nc2\\nc3\\n'",
        "srun": 'shift; exec "$@"',
        "torchrun": f'exec {shlex.quote(sys.executable)} -c {shlex.quote(ECHO)} "$@"',
    }
    for name, text in stand_ins.items():
        (tmp_path / name).write_text(f"#!/usr/bin/env bash\n{text}\n")
        (tmp_path / name).chmod(0o755)
    slurm = {
        "SLURM_JOB_NODELIST": "c[1-3]",
        "SLURM_JOB_NUM_NODES": "3",
        "SLURM_CPUS_PER_TASK": "8",
        "SLURM_JOB_ID": "17",
        "SLURM_SUBMIT_DIR": "/shared",
        "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
    }
    command = ["bash", str(SLURM), "pfedrec", "--data", "/shared/a b.parquet", "-o", "clients_per_round=100"]
    done = subprocess.run(command, env=slurm, capture_output=True, text=True, check=True)
    found, train = taken(json.loads(done.stdout))
    assert (found.nnodes, found.nproc_per_node) == ("3", "8")
    assert (found.rdzv_endpoint, found.rdzv_backend, found.rdzv_id) == ("c1:29400", "c10d", "17")
    assert (train["method"], train["data"]) == ("pfedrec", "/shared/a b.parquet")
    assert str(train["out_dir"]) == "/shared/runs/17"
    assert list(train["option"]) == ["clients_per_round=100"]


@pytest.mark.parametrize("file", [SLURM, KUBERNETES], ids=lambda file: file.name)
def test_both_say_that_they_were_not_run(file):
    assert "has not been run on a cluster" in file.read_text(encoding="utf-8")
