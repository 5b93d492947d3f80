"""The files around the code: they can be read, and agree with the package and its documentation."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent.parent
FORMS = sorted(path for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml")
CITED = {"PFedRec", "FedRAP", "PFedCLR", "FedEM", "PLGC"}


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_citation_is_of_this_version() -> None:
    citation = read(ROOT / "CITATION.cff")
    assert citation["cff-version"] == "1.2.0"
    assert citation["version"] == project()["version"]
    assert citation["license"] == project()["license"]


def test_the_cited_papers_are_those_of_the_method_pages() -> None:
    papers = {paper["notes"]: paper for paper in read(ROOT / "CITATION.cff")["references"]}
    assert set(papers) == CITED
    for name, paper in papers.items():
        page = " ".join((ROOT / f"docs/methods/{name.lower()}.md").read_text(encoding="utf-8").split())
        authors = ", ".join(
            f"{author['given-names']} {author['family-names']}" for author in paper["authors"]
        )
        assert f'{authors}: "{paper["title"]}"' in page
        assert str(paper["year"]) in page


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_an_issue_form_asks_for_something(form: Path) -> None:
    content = read(form)
    assert content["name"]
    assert content["description"]
    asked = [field for field in content["body"] if field["type"] != "markdown"]
    assert len({field["id"] for field in asked}) == len(asked) > 0
    assert all(field["attributes"]["label"] for field in asked)


def test_there_are_issue_forms_and_no_way_around_them() -> None:
    assert {form.name for form in FORMS} == {"bug.yml", "method.yml", "paper.yml"}
    assert read(ROOT / ".github/ISSUE_TEMPLATE/config.yml") == {"blank_issues_enabled": False}


def test_hosted_checks_are_the_local_ones() -> None:
    job = read(ROOT / ".github/workflows/ci.yml")["jobs"]["check"]
    assert job["steps"][-1]["run"] == "${{ matrix.program }}"
    programs = job["strategy"]["matrix"]["program"]
    assert programs == [".ci/run", ".ci/package"]
    assert all(os.access(ROOT / program, os.X_OK) for program in programs)


def test_actions_are_pinned_to_commits() -> None:
    """Whoever can move a tag of an action could run code in the checks, and in what is published."""
    workflows = sorted((ROOT / ".github/workflows").glob("*.yml"))
    assert [path.name for path in workflows] == ["ci.yml", "release.yml"]
    uses = [each for path in workflows for each in re.findall(r"uses: (.*)", path.read_text("utf-8"))]
    assert len(uses) == 8
    assert all(re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v[\d.]+", each) for each in uses)


def test_a_release_is_built_by_the_local_program_and_published_without_a_token() -> None:
    workflow = read(ROOT / ".github/workflows/release.yml")
    build, publish = workflow["jobs"]["build"], workflow["jobs"]["publish"]
    assert [step["run"] for step in build["steps"] if "run" in step] == ['.ci/release "$GITHUB_REF_NAME" out']
    assert os.access(ROOT / ".ci/release", os.X_OK)
    assert ".ci/package" in (ROOT / ".ci/release").read_text("utf-8")
    assert publish["permissions"] == {"id-token": "write"}
    assert publish["environment"] == "pypi"
    assert "secrets." not in (ROOT / ".github/workflows/release.yml").read_text("utf-8")


def test_a_tag_that_disagrees_with_the_version_is_not_released(tmp_path: Path) -> None:
    done = subprocess.run(
        [ROOT / ".ci/release", "v9.9.9", tmp_path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert f"the tag is v9.9.9, but pyproject.toml has {project()['version']}" in done.stderr
    assert not list(tmp_path.iterdir())


def test_the_conda_recipe_asks_for_what_the_package_asks_for() -> None:
    recipe = read(ROOT / "packaging/conda/recipe.yaml")
    asked = project()["dependencies"] + project()["optional-dependencies"]["train"]
    wanted = {each.replace(">=", " >=") for each in asked}
    wanted = {each.replace("torch ", "pytorch ") for each in wanted}
    needs = recipe["requirements"]
    assert set(needs["run"]) == {f"python {project()['requires-python']}", *wanted}
    assert {each.replace("pytorch-cpu", "pytorch") for each in needs["host"]} >= wanted
    assert recipe["context"]["version"] == project()["version"]
    script = "solera = " + project()["scripts"]["solera"]
    assert recipe["build"]["python"]["entry_points"] == [script]


def test_the_lock_names_public_hosts_alone() -> None:
    """A lock made behind a mirror cannot be used by anybody else."""
    lock = (ROOT / "uv.lock").read_text(encoding="utf-8")
    hosts = set(re.findall(r"\w+://([^/\"]*)", lock))
    assert hosts == {"pypi.org", "files.pythonhosted.org"}
    local = [one["source"] for one in tomllib.loads(lock)["package"] if "registry" not in one["source"]]
    assert local == [{"editable": "."}]


def test_hooks_are_the_everyday_checks() -> None:
    [local] = read(ROOT / ".pre-commit-config.yaml")["repos"]
    assert [hook["id"] for hook in local["hooks"]] == ["ruff", "ruff-format", "mypy"]
