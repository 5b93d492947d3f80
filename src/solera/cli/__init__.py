"""The command line: `solera`."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer
from rich.markup import escape

from solera.cli.lazy import Place, Pluggable
from solera.cli.output import err, help_if_alone, print_json
from solera.cli.renamed import with_new_names
from solera.core import extensions
from solera.core.errors import SoleraError, full_disk, missing_package
from solera.core.text import clean_text

# The root of what typer says of wrong arguments; before 0.29 that is click's, which it is built on.
WRONG_USE: Any = getattr(typer, "TyperException", None) or typer.BadParameter.__mro__[2]

_STOPPED = 130
LEARN, DEVICES, MEASURE = "Train and look", "Devices", "Measure and check"


class _Commands(Pluggable):
    own: ClassVar = {
        "methods": Place("solera.cli.methods:methods", LEARN),
        "train": Place("solera.cli.train:train", LEARN),
        "fit": Place("solera.cli.models:fit", LEARN),
        "serve": Place("solera.cli.models:serve", LEARN),
        "recommend": Place("solera.cli.recommend:recommend", LEARN),
        "export": Place("solera.cli.models:export", LEARN),
        "blend": Place("solera.cli.train:blend", LEARN),
        "sweep": Place("solera.cli.sweep:sweep", LEARN),
        "compare": Place("solera.cli.compare:compare", LEARN),
        "report": Place("solera.cli.report:report", LEARN),
        "data": Place("solera.cli.data:app", LEARN),
        "bundle": Place("solera.cli.bundle:app", DEVICES),
        "device": Place("solera.cli.device:app", DEVICES),
        "federation": Place("solera.cli.federation:app", DEVICES),
        "server": Place("solera.cli.server:app", DEVICES),
        "node": Place("solera.cli.node:app", DEVICES),
        "helper": Place("solera.cli.helper:app", DEVICES),
        "bench": Place("solera.cli.bench:app", MEASURE),
        "doctor": Place("solera.cli.doctor:doctor", MEASURE),
    }


app = typer.Typer(
    cls=_Commands,
    name="solera",
    help="Personalized federated recommendation: training is shared, histories stay on the devices.",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="rich",
)


def _version(wanted: bool) -> None:
    if wanted:
        from solera import __version__

        typer.echo(f"solera {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_version, is_eager=True)
    ] = False,
    traceback: Annotated[
        bool,
        typer.Option("--traceback", help="Show the full traceback of an error.", envvar="SOLERA_TRACEBACK"),
    ] = False,
    imported: Annotated[
        list[Path] | None,
        typer.Option(
            "--import",
            help="Python file that registers methods, data sets or metrics of your own.",
            envvar=extensions.VARIABLE,
        ),
    ] = None,
) -> None:
    if traceback:
        os.environ["SOLERA_TRACEBACK"] = "1"
    if imported:  # absolute, and where other processes find it too
        os.environ[extensions.VARIABLE] = os.pathsep.join(str(file.resolve()) for file in imported)
    help_if_alone(context)


def main() -> None:
    """Run the command line. An error prints two lines on standard error and exits with a nonzero code."""
    sys.argv[1:] = with_new_names(sys.argv[1:])  # also for workers that are started with the same arguments
    try:
        code = app(standalone_mode=False)
        if code == _STOPPED:  # as some versions of typer say of Ctrl-C
            raise KeyboardInterrupt
    except WRONG_USE as error:
        context = getattr(error, "ctx", None)
        _complain(_suggesting_once(error), f"{context.command_path} --help" if context else "solera --help")
        code = error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        code = _STOPPED
        _complain("stopped", "")
    except Exception as error:
        known = error if isinstance(error, SoleraError) else full_disk(error) or missing_package(error)
        if known is None or os.environ.get("SOLERA_TRACEBACK"):
            raise
        _complain(clean_text(known.message), clean_text(known.hint))  # it may quote a file or a server
        code = known.exit_code
    sys.exit(code if isinstance(code, int) else 0)


def _suggesting_once(error: Any) -> str:
    """What click says of a misspelt name, with the one suggestion that is nearest."""
    from difflib import get_close_matches

    message = str(error.format_message()).replace("Value error, ", "")  # as typer 0.29 says
    said, *suggested = re.split(r"\(?Did you mean", message, maxsplit=1)  # typer's own, click's, or both
    name, known = getattr(error, "option_name", ""), getattr(error, "possibilities", None)
    near = (
        get_close_matches(name, known, n=1, cutoff=0)
        if name and known
        else re.findall(r"'([^']+)'", "".join(suggested))
    )
    return f"{said.strip()} Did you mean {near[0]!r}?" if suggested and near else message


def _complain(message: str, hint: str) -> None:
    if "--json" in sys.argv:
        print_json({"error": message, "next": hint})
    err.print(f"[bold red]error:[/] {escape(message)}", highlight=False, soft_wrap=True)
    if hint:
        err.print(f"[bold]next:[/] {escape(hint)}", highlight=False, soft_wrap=True)
