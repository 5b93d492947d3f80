"""solera federation demo: a federation of real processes, all of them on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from solera.cli.options import Columns, Data, DataDir, parse_columns
from solera.cli.output import Answer, Line, Table, answers, err
from solera.cli.progress import open_progress

if TYPE_CHECKING:
    from solera.federation.operate.demo import Demo


@answers
def demo(
    data: Data = "ml-100k",
    nodes: Annotated[int, typer.Option(help="Devices that take part.", min=1)] = 3,
    users: Annotated[int, typer.Option(help="Users on every device.", min=1)] = 50,
    method: Annotated[str, typer.Option(help="A method; `solera methods` lists them.")] = "pfedrec",
    rounds: Annotated[int, typer.Option(help="Rounds of training.", min=1)] = 5,
    keep: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Keep keys, devices, the server's folder and logs here."),
    ] = None,
    data_dir: DataDir = None,
    columns: Columns = None,
) -> Answer:
    """Run a small federation on this machine: devices with real histories, a TLS server, recommendations.

    Everything is started on this machine, and ended and deleted at the end.

    Example: solera federation demo --data ml-100k --nodes 3 --users 50 --rounds 5
    """
    from solera.data.datasets import load
    from solera.federation.common.private_files import private_files
    from solera.federation.node.work import deployable
    from solera.federation.operate import demo as everything
    from solera.federation.operate.processes import ended_by_signals
    from solera.methods import find

    name, *plugins = method.split("+")
    deployable(find(name, {}, plugins))
    interactions = load(data, data_dir=data_dir, columns=parse_columns(columns))
    progress = open_progress(f"{method} on {nodes} nodes", "round")
    with private_files(), ended_by_signals(), progress as update:
        done = everything.run(
            interactions,
            method=method,
            nodes=nodes,
            users=users,
            rounds=rounds,
            tell=lambda step: err.print(f"· {step}", highlight=False, markup=False, soft_wrap=True),
            on_round=lambda round_: update(round_["round"], round_["rounds"], figures(round_)),
            keep=keep,
        )
    said = _shown(done, nodes * users)
    if keep is not None:
        hint = f"next: solera device recommend {keep / 'home-1'} --user {done.user} -k 10"
        said.append(Line(hint, "dim"))
    return Answer(_as_json(done) | {"kept": None if keep is None else str(keep)}, said)


def figures(done: dict[str, Any]) -> str:
    """Summary of a round in one line."""
    traffic = done.get("bytes", {})
    parts = [
        f"{done.get('clients', 0):,} clients on {done.get('nodes', 0)} nodes",
        f"{traffic.get('up', 0) / 2**20:.1f} MiB up, {traffic.get('down', 0) / 2**20:.1f} MiB down",
        f"{done.get('seconds', 0.0):.1f} s",
    ]
    rejected = ", ".join(f"{count} {why}" for why, count in done.get("rejected", {}).items() if count)
    return " · ".join([*parts, f"rejected: {rejected}"] if rejected else parts)


def _as_json(done: Demo) -> dict[str, Any]:
    shown = [
        {"rank": one.rank, "item": one.item, "title": one.title, "score": one.score}
        for one in done.recommended
    ]
    return {
        "rounds": done.rounds,
        "before": done.before,
        "after": done.after,
        "user": done.user,
        "held_back": done.held_back,
        "recommended": shown,
        "sent": done.sent,
        "seconds": round(done.seconds, 1),
    }


def _shown(done: Demo, users: int) -> list[Table | Line]:
    ranked = Table(
        f"The held-back items of {users:,} users, each ranked on its own device against the whole catalogue",
        ("", *done.before),
        [
            ("before the first round", *done.before.values()),
            (f"after {_rounds(done)}", *done.after.values()),
        ],
    )
    recommended = Table(
        f"For user {done.user} (held back: {done.held_back})",
        ("#", "item", "title", "score"),
        ((one.rank, one.item, one.title, one.score) for one in done.recommended),
    )
    sent = Table(
        f"What left the device of user {done.user}",
        ("", "messages", "bytes", "arrays and lists of each"),
        [
            (what, len(some), sum(each["bytes"] for each in some), shapes(some[-1]))
            for what, some in _by_kind(done.sent).items()
            if some
        ],
    )
    return [ranked, recommended, sent, Line(f"{done.seconds:.0f} s in all")]


def _rounds(done: Demo) -> str:
    return "1 round" if len(done.rounds) == 1 else f"{len(done.rounds)} rounds"


def shapes(sent: dict[str, Any]) -> str:
    """Description of the arrays in a message of the outbox."""
    return ", ".join(f"{name} {'×'.join(map(str, shape))}" for name, shape in sent["tensors"].items())


def _by_kind(sent: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    return {
        "who takes part, final state taken": [each for each in sent if each["round"] < 0],
        "rounds": [each for each in sent if each["round"] >= 0],
    }
