"""solera fleet: a load test with many nodes."""

from __future__ import annotations

from typing import Annotated

import typer

from solera.cli.options import parse_pairs
from solera.cli.output import Json, err, out, print_json, table


def fleet(
    nodes: Annotated[int, typer.Option(help="Nodes, each with a key of its own.", min=2)] = 50,
    rounds: Annotated[int, typer.Option(help="Rounds.", min=1)] = 3,
    per_round: Annotated[int, typer.Option(help="Nodes needed in a round; 0 for all.", min=0)] = 0,
    edges: Annotated[int, typer.Option(help="Edges that the nodes are behind; 0 for none.", min=0)] = 0,
    masked: Annotated[bool, typer.Option("--masked", help="Rounds with secure aggregation.")] = False,
    share: Annotated[
        list[str] | None,
        typer.Option(
            metavar="BEHAVIOUR=SHARE",
            help="Share of the nodes that are slow, silent, leaving, returning, old or lying (repeatable).",
        ),
    ] = None,
    users: Annotated[int, typer.Option(help="Users of every node.", min=1)] = 1,
    items: Annotated[int, typer.Option(help="Items of the catalogue.", min=20)] = 200,
    slow: Annotated[float, typer.Option(help="Seconds that a slow node waits.", min=0)] = 5.0,
    away: Annotated[float, typer.Option(help="Seconds that a returning node is away.", min=0)] = 30.0,
    deadline: Annotated[float, typer.Option(help="Longest wait of an exchange, in seconds.", min=1)] = 600.0,
    echo: Annotated[
        int, typer.Option(help="Echoes of the same bytes and exchanges, for comparison.", min=0)
    ] = 0,
    processes: Annotated[int, typer.Option(help="Processes for the nodes.", min=1)] = 2,
    minutes: Annotated[float, typer.Option(help="After which the nodes end, whatever happens.")] = 30.0,
    seed: Annotated[int, typer.Option(help="Draws histories and who misbehaves.")] = 0,
    json: Json = False,
) -> None:
    """Load test: a real server and many real nodes in few processes, on this machine.

    Every node has its own key, TLS connection, signatures, masks and device folder, and speaks Flower's
    protocol. Histories are small and random. Everything is removed at the end.

    Example: solera fleet --nodes 200 --rounds 5 --per-round 50 --share silent=0.05 --share slow=0.05 --json
    """
    from solera.deploy.operate.fleet import FleetSettings, run
    from solera.deploy.operate.processes import ended_by_signals

    settings = FleetSettings(
        nodes=nodes,
        rounds=rounds,
        per_round=per_round,
        edges=edges,
        masked=masked,
        shares={name: float(value) for name, value in parse_pairs(share or [], "--share silent=0.1").items()},
        users=users,
        items=items,
        slow=slow,
        away=away,
        deadline=deadline,
        echo=echo,
        processes=processes,
        minutes=minutes,
        seed=seed,
    )

    def tell(text: str) -> None:
        err.print(f"· {text}", highlight=False)

    def on_round(done: dict[str, object]) -> None:
        err.print(
            f"round {done['round']}/{done['rounds']} · {done['nodes']} nodes · {done['seconds']} s"
            f" · rejected {done['rejected']}",
            highlight=False,
        )

    with ended_by_signals():
        report = run(settings, tell, on_round)
    if json:
        print_json(report.to_dict())
        return
    table(
        f"{nodes} nodes{f' behind {edges} edges' if edges else ''}, {'masked' if masked else 'plain'} rounds",
        ("round", "nodes", "messages", "bytes up", "bytes down", "seconds", "by exchange"),
        [
            (
                str(each["round"]),
                str(each["nodes"]),
                *(
                    f"{sum(stage[what] for stage in each['stages'].values()):,}"
                    for what in ("messages", "up", "down")
                ),
                f"{each['seconds']:.1f}",
                ", ".join(f"{kind} {stage['seconds']:.1f}" for kind, stage in each["stages"].items()),
            )
            for each in report.rounds
        ],
    )
    if report.echoes:
        seconds = ", ".join(f"{each['seconds']:.1f}" for each in report.echoes)
        out.print(f"echoes of the same bytes and exchanges: {seconds} s", highlight=False)
    assert report.load
    load = report.load
    out.print(
        f"all nodes had joined after {report.joined:.0f} s; the server took {load.memory:.0f} MiB at most,"
        f" its database {load.database:.0f} MiB; processor seconds: {load.cpu}",
        highlight=False,
        soft_wrap=True,
    )
    out.print(f"what nodes did: {report.done}; seconds: {report.answering}", highlight=False, soft_wrap=True)
