"""solera federation: the keys of a federation over a network, and its runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from solera.cli.demo import demo, figures
from solera.cli.invitation import invite
from solera.cli.output import Answer, Line, answers, err, help_if_alone, privacy_line
from solera.cli.progress import open_progress
from solera.cli.serve import backup, restore, rollback, serve, status

if TYPE_CHECKING:
    from solera.federation.server.folder import FederationFolder

app = typer.Typer(help="Train on devices over a network.", invoke_without_command=True)
app.callback()(help_if_alone)
app.command()(demo)
for _command in (invite, serve, status, rollback, backup, restore):
    app.command()(_command)

DifferentialPrivacy = Annotated[
    str | None,
    typer.Option(
        "--dp",
        help="User-level differential privacy over all rounds: epsilon=8,delta=1e-5[,clip=1]"
        "[,accountant=pld|rdp]; or noise=1.1,delta=1e-5. The server adds the noise; with "
        "mode=distributed and --secure-aggregation every node adds a share of it.",
    ),
]


@app.command()
@answers
def keys(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the keys; created if missing.")],
    nodes: Annotated[int, typer.Option(help="Total number of nodes with a key.", min=0)] = 0,
    host: Annotated[
        list[str] | None,
        typer.Option(help="Host name or address under which nodes reach the server; repeatable."),
    ] = None,
    days: Annotated[int, typer.Option(help="Days for which the server's certificate is valid.", min=1)] = 365,
) -> Answer:
    """Make a certificate authority, the server's certificate and a key per node. Existing files are kept.

    For tests and small federations: whoever has DIR/ca.key can pose as the server.

    Example: solera federation keys keys --nodes 3 --host recommender.example.org
    """
    from solera.federation.common.authority import make_keys

    written = [str(path) for path in make_keys(folder, nodes, tuple(host or ()), days)]
    said = [Line(path if path.endswith((".pem", ".pub")) else f"{path}  (secret)") for path in written]
    following = Line(f"next: solera server start FOLDER --keys {folder}", "dim")
    return Answer({"written": written}, [*(said or [Line("all there already")]), following])


@app.command()
@answers
def roster(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the keys.")],
    to: Annotated[
        Path | None, typer.Option("-o", "--out", help="File to write (default: DIR/roster.json).")
    ] = None,
) -> Answer:
    """Sign the list of all nodes' public keys, which nodes need for secure aggregation.

    Nodes get it with ca.pem and roster.pub. A list that is there already is continued: nodes that have it
    take the new one, and no other. The digest that is printed is the same for all members; let them compare
    it. DIR/roster.key must be out of the reach of the server's operator, who could sign a list of nodes that
    do not exist.

    Example: solera federation roster keys -o roster.json
    """
    from solera.core.files import write_atomically
    from solera.federation.secure.roster import ROSTER, make_roster

    path = to or folder / ROSTER
    made = make_roster(folder, path)
    write_atomically(path, made.model_dump_json(indent=2) + "\n")
    found = {"nodes": list(made.nodes), "number": len(made.former) + 1, "digest": made.digest}
    said = f"{path}: list {len(made.former) + 1}, {len(made.nodes)} nodes, {', '.join(made.nodes)}"
    return Answer({"written": str(path)} | found, [Line(said), Line(f"digest {made.digest}")])


@app.command()
@answers
def run(
    folder: Annotated[Path, typer.Argument(help="Folder of the federation; its server must be running.")],
    bundle: Annotated[
        Path | None,
        typer.Option(help="The bundle that the devices use: method and catalogue.", metavar="FILE"),
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="Total number of rounds (20).", min=1)] = None,
    nodes: Annotated[
        int | None, typer.Option(help="Nodes that must be online before a round starts (2).", min=1)
    ] = None,
    deadline: Annotated[
        float | None, typer.Option(help="Seconds to wait for replies before a round is closed (600).", min=1)
    ] = None,
    straggler_wait: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="How long a round waits for nodes that hang, once two thirds have answered (10).",
        ),
    ] = None,
    min_replies: Annotated[
        float | None,
        typer.Option(
            help="Share of users (with --dp: of nodes) that must reply for a round to count (0.5).",
            min=0,
            max=1,
        ),
    ] = None,
    over_selection: Annotated[
        float | None,
        typer.Option(help="Users asked per user needed, if clients are sampled (1.3).", min=1),
    ] = None,
    max_norm: Annotated[
        float | None,
        typer.Option(
            help="Largest accepted L2 norm of one user's change (default: from other users' norms).",
            min=0,
        ),
    ] = None,
    users_per_node: Annotated[
        int | None, typer.Option(help="Largest number of users on one node (100).", min=1)
    ] = None,
    secure_aggregation: Annotated[
        bool | None,
        typer.Option(
            "--secure-aggregation", help="Mask uploads, so that the server sees only sums over nodes."
        ),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            help="Share of a masked round's nodes that must stay until it ends (0.67).", min=0.51, max=1
        ),
    ] = None,
    least_nodes: Annotated[
        int | None, typer.Option(help="Smallest number of nodes in a masked sum (10).", min=2)
    ] = None,
    least_share: Annotated[
        float | None,
        typer.Option(help="Smallest share of the roster in a masked sum (0.5).", min=0, max=1),
    ] = None,
    least_users: Annotated[
        int | None, typer.Option(help="Smallest number of users in a masked sum (10).", min=1)
    ] = None,
    sums_without_noise: Annotated[
        int | None,
        typer.Option(help="Masked sums without noise that devices help to open, at most (1).", min=1),
    ] = None,
    groups: Annotated[
        int | None,
        typer.Option(
            help="Groups of nodes; each has its own masked sum, and the sums are compared (1).", min=1
        ),
    ] = None,
    combine: Annotated[
        Literal["median", "trimmed-mean", "mean"] | None,
        typer.Option(help="How the means of three or more groups are combined (median)."),
    ] = None,
    roster: Annotated[
        Path | None,
        typer.Option(
            help="Signed list of the nodes' keys, for masked rounds (default: roster.json next to ca.pem)."
        ),
    ] = None,
    dp: DifferentialPrivacy = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted federation.")] = False,
) -> Answer:
    """Train on all nodes of a running federation, and wait until training is done.

    The method is the bundle's: devices take part in nothing that its publisher has not signed.

    Example: solera federation run films --bundle films.bundle --nodes 3 --rounds 20

    Example: solera federation run films --bundle films.bundle --nodes 10 --secure-aggregation
        --dp epsilon=8,delta=1e-5,mode=distributed

    Example: solera federation run films --bundle films.bundle --nodes 3 --dp epsilon=8,delta=1e-5

    Example: solera federation run films --resume
    """
    from solera.device.bundle import Bundle
    from solera.dp.settings import DP
    from solera.federation.common.private_files import private_files
    from solera.federation.common.settings import Settings, check_roster
    from solera.federation.operate import serve as operate
    from solera.federation.operate.processes import ended_by_signals
    from solera.federation.server.folder import FederationFolder

    given = {
        "rounds": rounds,
        "min_nodes": nodes,
        "deadline": deadline,
        "straggler_wait": straggler_wait,
        "min_replies": min_replies,
        "over_selection": over_selection,
        "max_norm": max_norm,
        "users_per_node": users_per_node,
        "secure_aggregation": secure_aggregation,
        "threshold": threshold,
        "least_nodes": least_nodes,
        "least_share": least_share,
        "least_users": least_users,
        "sums_without_noise": sums_without_noise,
        "groups": groups,
        "combine": combine,
        "dp": None if dp is None else DP.parse(dp),
    }
    operate.check(folder)
    known = operate.roster_of(folder, roster) if secure_aggregation else None
    if known is not None and not resume:
        check_roster(
            len(known.nodes), Settings.model_validate({k: v for k, v in given.items() if v is not None})
        )
    with private_files(), ended_by_signals():
        federation = FederationFolder.prepare(
            folder,
            None if bundle is None else Bundle.open(bundle),
            {name: value for name, value in given.items() if value is not None},
            resume=resume,
        )
        if known is not None:
            federation.keep_roster(known)
        _tell(federation.privacy)
        with open_progress(f"federation {folder}", "round") as update:
            last = operate.run(
                folder,
                lambda done: update(done["round"], done["rounds"], figures(done)),
                nodes=federation.identity.settings.min_nodes,
            )
    return Answer(
        _done(federation, last), [Line(f"{last.get('round', 0)} rounds are done · {figures(last)}")]
    )


def _tell(stated: dict[str, Any] | None) -> None:
    """Print the privacy guarantee before training starts."""
    if stated:
        err.print(privacy_line(stated), highlight=False, soft_wrap=True)


def _done(federation: FederationFolder, last: dict[str, Any]) -> dict[str, Any]:
    stated = federation.privacy
    found = {"folder": str(federation.path), "last_round": last}
    return found | ({"privacy": stated} if stated else {})
