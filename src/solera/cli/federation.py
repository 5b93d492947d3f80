"""solera federation: the keys of a federation over a network, and its runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from solera.cli.output import Json, help_if_alone, out, print_json
from solera.cli.progress import open_progress

app = typer.Typer(help="Train on devices over a network, with Flower.", invoke_without_command=True)
app.callback()(help_if_alone)

ShowCommands = Annotated[
    bool, typer.Option("--show-commands", help="Print Flower's own commands for a shell; start nothing.")
]


@app.command()
def keys(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where the keys are, or shall be.")],
    nodes: Annotated[int, typer.Option(help="How many nodes shall have a key, in all.", min=0)] = 0,
    host: Annotated[
        list[str] | None,
        typer.Option(help="A name or address nodes call the server by; may be repeated."),
    ] = None,
    days: Annotated[int, typer.Option(help="How long the server's certificate is valid.", min=1)] = 365,
    json: Json = False,
) -> None:
    """Make an authority, the server's certificate and a key per node; what is there already is kept.

    For tests and small federations: whoever has DIR/ca.key can pose as the server.

    Example: solera federation keys keys --nodes 3 --host recommender.example.org
    """
    from solera.deploy.authority import make_keys

    written = [str(path) for path in make_keys(folder, nodes, tuple(host or ()), days)]
    if json:
        print_json({"written": written})
        return
    for path in written:
        note = "" if path.endswith((".pem", ".pub")) else "  (secret)"
        out.print(f"{path}{note}", highlight=False, markup=False, soft_wrap=True)
    if not written:
        out.print("all there already")
    out.print(f"next: solera server start FOLDER --keys {folder}", style="dim", highlight=False)


@app.command()
def run(
    folder: Annotated[Path, typer.Argument(help="The federation's folder, whose server is running.")],
    bundle: Annotated[
        Path | None, typer.Option(help="Method and catalogue, as the devices have them.", metavar="FILE")
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds in all (20).", min=1)] = None,
    nodes: Annotated[
        int | None, typer.Option(help="Nodes that must be there for a round to begin (2).", min=1)
    ] = None,
    deadline: Annotated[
        float | None, typer.Option(help="Seconds after which a round ends with what has come (600).", min=1)
    ] = None,
    min_replies: Annotated[
        float | None,
        typer.Option(help="Share of users needed for a round to count (0.5).", min=0, max=1),
    ] = None,
    over_selection: Annotated[
        float | None,
        typer.Option(help="Users asked for every user needed, where not all take part (1.3).", min=1),
    ] = None,
    max_norm: Annotated[
        float | None, typer.Option(help="Norm up to which one user's change is taken (10000).", min=0)
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with an interrupted federation.")] = False,
    show_commands: ShowCommands = False,
    json: Json = False,
) -> None:
    """Train on all nodes of a running federation, and stay until it is done.

    The method is the bundle's: devices take part in nothing that its publisher has not signed.

    Example: solera federation run films --bundle films.bundle --nodes 3 --rounds 20

    Example: solera federation run films --resume
    """
    from solera.deploy import submit
    from solera.deploy.folder import FederationFolder
    from solera.deploy.processes import ended_by_signals
    from solera.device.bundle import Bundle

    if show_commands:
        out.print(submit.command(folder), highlight=False, markup=False, soft_wrap=True)
        return
    given = {
        "rounds": rounds,
        "min_nodes": nodes,
        "deadline": deadline,
        "min_replies": min_replies,
        "over_selection": over_selection,
        "max_norm": max_norm,
    }
    submit.check(folder)
    federation = FederationFolder.prepare(
        folder,
        None if bundle is None else Bundle.open(bundle),
        {name: value for name, value in given.items() if value is not None},
        resume=resume,
    )
    with ended_by_signals(), open_progress(f"federation {folder}", "round") as update:
        last = submit.run(
            folder,
            lambda done: update(done["round"], done["rounds"], _figures(done)),
            nodes=federation.identity.settings.min_nodes,
        )
    if json:
        print_json({"folder": str(folder), "last_round": last})
        return
    out.print(f"{last.get('round', 0)} rounds are done · {_figures(last)}", highlight=False)


def _figures(done: dict[str, Any]) -> str:
    traffic = done.get("bytes", {})
    parts = [
        f"{done.get('clients', 0):,} clients on {done.get('nodes', 0)} nodes",
        f"{traffic.get('up', 0) / 2**20:.1f} MiB up, {traffic.get('down', 0) / 2**20:.1f} MiB down",
        f"{done.get('seconds', 0.0):.1f} s",
    ]
    rejected = ", ".join(f"{count} {why}" for why, count in done.get("rejected", {}).items() if count)
    return " · ".join([*parts, f"rejected: {rejected}"] if rejected else parts)
