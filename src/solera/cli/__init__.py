"""The command line: `solera`."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from solera.cli import (
    bench,
    bundle,
    data,
    device,
    edge,
    federation,
    methods,
    node,
    runs,
    server,
)
from solera.cli.baseline import baseline
from solera.cli.blend import blend
from solera.cli.compare import compare
from solera.cli.doctor import doctor
from solera.cli.fleet import fleet
from solera.cli.output import err, help_if_alone, print_json
from solera.cli.plugins import Pluggable
from solera.cli.recommend import recommend, similar
from solera.cli.report import report
from solera.cli.sweep import sweep
from solera.core.errors import SoleraError, full_disk
from solera.core.text import clean_text

# The root of what typer says of wrong arguments; before 0.29 that is click's, which it is built on.
WRONG_USE: Any = getattr(typer, "TyperException", None) or typer.BadParameter.__mro__[2]

_STOPPED = 130

app = typer.Typer(
    cls=Pluggable,
    name="solera",
    help="Personalized federated recommendation: training is shared, histories stay on the devices.",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="rich",
)
LEARN, DEVICES, MEASURE = "Train and look", "Devices", "Measure and check"
app.command(rich_help_panel=LEARN)(methods.methods)
app.command(rich_help_panel=LEARN)(methods.presets)
app.command(rich_help_panel=LEARN)(runs.train)
app.command(rich_help_panel=LEARN)(recommend)
app.command(rich_help_panel=LEARN)(similar)
app.command(rich_help_panel=LEARN)(baseline)
app.command(rich_help_panel=LEARN)(blend)
app.command(rich_help_panel=LEARN)(sweep)
app.command(rich_help_panel=LEARN)(compare)
app.command(rich_help_panel=LEARN)(report)
app.add_typer(data.app, name="data", rich_help_panel=LEARN)
app.add_typer(bundle.app, name="bundle", rich_help_panel=DEVICES)
app.add_typer(device.app, name="device", rich_help_panel=DEVICES)
app.add_typer(federation.app, name="federation", rich_help_panel=DEVICES)
app.add_typer(server.app, name="server", rich_help_panel=DEVICES)
app.add_typer(node.app, name="node", rich_help_panel=DEVICES)
app.add_typer(edge.app, name="edge", rich_help_panel=DEVICES)
app.add_typer(bench.app, name="bench", rich_help_panel=MEASURE)
app.command(rich_help_panel=MEASURE)(fleet)
app.command(rich_help_panel=MEASURE)(doctor)


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
    methods: Annotated[
        list[Path] | None,
        typer.Option(
            "--methods", help="Python file that registers your own methods.", envvar="SOLERA_METHODS"
        ),
    ] = None,
) -> None:
    if traceback:
        os.environ["SOLERA_TRACEBACK"] = "1"
    if methods:  # absolute, and where other processes find it too
        os.environ["SOLERA_METHODS"] = os.pathsep.join(str(file.resolve()) for file in methods)
    help_if_alone(context)


def main() -> None:
    """Run the command line. An error prints two lines on standard error and exits with a nonzero code."""
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
        known = error if isinstance(error, SoleraError) else full_disk(error)
        if known is None or os.environ.get("SOLERA_TRACEBACK"):
            raise
        _complain(clean_text(known.message), clean_text(known.hint))  # it may quote a file or a server
        code = known.exit_code
    sys.exit(code if isinstance(code, int) else 0)


def _suggesting_once(error: Any) -> str:
    """What click says of a misspelt name, with the one suggestion that is nearest."""
    from difflib import get_close_matches

    message = str(error.format_message())
    said, mark, _ = (
        message.partition("(Did you mean") if "(Did" in message else message.partition("Did you mean")
    )
    name, known = getattr(error, "option_name", ""), getattr(error, "possibilities", None)
    near = (
        get_close_matches(name, known, n=1, cutoff=0)
        if name and known
        else re.findall(r"'([^']+)'\?", message)
    )
    return f"{said.strip()} Did you mean {near[0]!r}?" if mark and near else message


def _complain(message: str, hint: str) -> None:
    if "--json" in sys.argv:
        print_json({"error": message, "next": hint})
    err.print(f"[bold red]error:[/] {escape(message)}", highlight=False, soft_wrap=True)
    if hint:
        err.print(f"[bold]next:[/] {escape(hint)}", highlight=False, soft_wrap=True)
