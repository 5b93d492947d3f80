"""solera doctor: check the installation."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from solera.cli.output import Answer, Line, Table, answers


@answers
def doctor(
    clear: Annotated[
        bool,
        typer.Option(
            "--clear",
            help="Delete the converted copies of data sets that make loading fast. They are made again.",
        ),
    ] = False,
) -> Answer:
    """Check the installation, the machine and the data folders.

    Example: solera doctor

    Example: solera doctor --clear
    """
    if clear:
        from solera.data.files import clear as delete
        from solera.data.files import converted_dir

        converted, size = converted_dir(), delete()
        said = [Line(f"deleted {size / 1e6:,.1f} MB in {converted}")]
        return Answer({"folder": str(converted), "bytes": size}, said)
    try:
        import torch
    except ModuleNotFoundError:
        said = [Line("a device has all it needs; what trains: pip install 'solera[train]'", "green")]
        return Answer({"problems": ["torch is not installed: pip install 'solera[train]'"]}, said)

    from solera.data.datasets import available, names
    from solera.data.files import ENVIRONMENT, cache_dir
    from solera.runs.environment import environment, package_version

    found: dict[str, Any] = environment(
        torch.get_num_threads(), "cuda" if torch.cuda.is_available() else "cpu"
    )
    folder = os.environ.get(ENVIRONMENT)
    found["data_folder"] = folder
    found["cache"] = str(cache_dir())
    found["datasets_here"] = [name for name in names() if available(name) in ("folder", "cache")]
    found["extras"] = {
        "node": package_version("stamina"),
        "server": package_version("alembic"),
        "flower": package_version("flwr"),
        "ials": package_version("implicit"),
    }
    problems = []
    if folder and not Path(folder).is_dir():
        problems.append(f"{ENVIRONMENT} names {folder}, which is not a folder: correct or unset it")
    if not found["datasets_here"]:
        problems.append("no data set is here yet: `solera data show` shows which can be downloaded")
    apart = {"packages": found.pop("packages"), "problems": problems}
    rows = [(key.replace("_", " "), _plain(value)) for key, value in found.items()]
    said = [Line(f"• {problem}", "yellow") for problem in problems]
    said = said or [Line("everything needed is here", "green")]
    return Answer(found | apart, [Table("Doctor", ("", "value"), [*rows, *apart["packages"].items()]), *said])


def _plain(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {inner or 'not installed'}" for key, inner in value.items())
    return ", ".join(value) if isinstance(value, list) else str(value)
