"""Each check by itself, in an environment of its own: `uvx nox -s lint`. `.ci/run` does all in one."""

from __future__ import annotations

import nox

nox.options.default_venv_backend = "uv"
nox.options.sessions = ["lint", "types", "tests", "docs"]

EXTRAS = nox.project.load_toml("pyproject.toml")["project"]["optional-dependencies"]
EVERYTHING = ("--editable", f".[{','.join(EXTRAS)}]", "--editable", "research")
QUIET = {"NO_MKDOCS_2_WARNING": "1"}
TORCH = "torch==2.13.0"  # as in .ci/run; which build it is depends on the index that uv is given


@nox.session
def lint(session: nox.Session) -> None:
    """Style, format, spelling, prose, and whether uv.lock is what pyproject.toml asks for."""
    session.install(*(one for one in EXTRAS["dev"] if one.startswith(("ruff", "codespell"))))
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("codespell")
    session.run("python", "tools/prose.py")
    session.run("uv", "lock", "--check", external=True)


@nox.session
def types(session: nox.Session) -> None:
    """Type checks."""
    session.install(TORCH, *EVERYTHING)
    session.run("mypy")


@nox.session
def tests(session: nox.Session) -> None:
    """The everyday suite, or what is named after `--`."""
    session.install(TORCH, *EVERYTHING)
    session.install("--overrides", "packaging/lenskit-rectools.txt", "lenskit", "rectools")
    session.run("pytest", "-q", *(session.posargs or ["-n", "2", "--dist", "worksteal", "-m", "not slow"]))


@nox.session
def slow(session: nox.Session) -> None:
    """What takes longer than the everyday suite allows."""
    session.install(TORCH, *EVERYTHING)
    session.run("pytest", "-q", "-m", "slow", *session.posargs)


@nox.session
def coverage(session: nox.Session) -> None:
    """The everyday suite under coverage, or what the tests named after `--` cover."""
    session.install(TORCH, *EVERYTHING)
    session.run("python", "tools/covered.py", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    """The site, with every warning an error."""
    session.install(*EXTRAS["docs"])
    session.run("mkdocs", "build", "--strict", "--site-dir", session.create_tmp(), env=QUIET)


@nox.session(venv_backend="none")
def package(session: nox.Session) -> None:
    """Wheel and sdist, each tried in an environment of its own."""
    session.run(".ci/package", *session.posargs)


@nox.session
def lowest(session: nox.Session) -> None:
    """The everyday suite on the lowest versions that pyproject.toml admits, but for torch."""
    session.install("--resolution", "lowest-direct", TORCH, *EVERYTHING)
    session.run("pytest", "-q", "-n", "2", "--dist", "worksteal", "-m", "not slow", *session.posargs)
