"""solera federation serve, status, rollback, backup, restore: a federation that runs for good."""

from __future__ import annotations

import json as jsonlib
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from solera.cli.output import Answer, Json, Line, answers, duration, out, print_json

Folder = Annotated[Path, typer.Argument(help="Folder of the federation.")]
_TOLD = {"taken", "enrolled", "rejected"}  # one per node and round: in events.jsonl alone


def serve(
    folder: Annotated[Path | None, typer.Argument(help="Folder of the federation.")] = None,
    settings: Annotated[
        Path | None, typer.Option("--settings", metavar="FILE", help="TOML file with all settings.")
    ] = None,
    example: Annotated[
        bool, typer.Option("--example", help="Print a file of settings with comments; start nothing.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document per line and event.")] = False,
) -> None:
    """Run a federation for good: train by a schedule, check new versions, and publish them.

    The server must be running (`solera server start`). Ctrl-C or SIGTERM ends it; the same command goes on.

    Example: solera federation serve --example > serve.toml

    Example: solera federation serve films --settings serve.toml
    """
    from solera.core.errors import ConfigError
    from solera.federation.server.plan import EXAMPLE, ServePlan

    if example:
        sys.stdout.write(EXAMPLE)
        return
    if folder is None or settings is None:
        raise ConfigError(
            "a folder and --settings are needed", "solera federation serve --example > serve.toml"
        )
    plan = ServePlan.read(settings)

    from solera.federation.common.private_files import private_files
    from solera.federation.operate import serve as served
    from solera.federation.operate.processes import ended_by_signals

    def tell(line: dict[str, Any]) -> None:
        if json:
            sys.stdout.write(jsonlib.dumps(line, ensure_ascii=False) + "\n")
            sys.stdout.flush()
        elif line.get("event") not in _TOLD:
            out.print(_sentence(line), highlight=False, markup=False, soft_wrap=True)

    with private_files(), ended_by_signals():
        served.prepare(folder, plan)
        try:
            served.serve(folder, tell)
        except KeyboardInterrupt:
            tell({"event": "stopped"})


def status(
    folder: Folder,
    watch: Annotated[bool, typer.Option("--watch", help="Show it until Ctrl-C, every two seconds.")] = False,
    json: Json = False,
) -> None:
    """Show what a federation is doing: rounds, nodes, versions, privacy budget, problems.

    Example: solera federation status films --watch

    Example: solera federation status films --json
    """
    from solera.federation.operate.figures import Status

    looked = Status(folder)
    if json:
        print_json(looked.look())
        return
    if not watch:
        out.print(_page(looked.look()), highlight=False, markup=False, soft_wrap=True)
        return
    from rich.live import Live
    from rich.text import Text

    with Live(Text(_page(looked.look())), console=out, refresh_per_second=2) as live:
        while True:
            time.sleep(2)
            live.update(Text(_page(looked.look())))


@answers
def rollback(
    folder: Folder,
    to: Annotated[int | None, typer.Option("--to", help="Version to publish (default: the former).")] = None,
) -> Answer:
    """Withdraw the canary, or go back to the version that was published before.

    Nodes get it as soon as they are online. Training continues from it. No round is repeated.

    Example: solera federation rollback films

    Example: solera federation rollback films --to 12
    """
    from solera.federation.operate.serve import roll_back

    version = roll_back(folder, to)
    said = f"version {version.number} of round {version.round} is published again"
    return Answer(version.model_dump(), [Line(said)])


@answers
def backup(
    folder: Folder,
    to: Annotated[Path, typer.Option("-o", "--out", metavar="FILE", help="File to write (.tar.gz).")],
    wait: Annotated[float, typer.Option(help="Seconds to wait for a round to end.", min=0)] = 600,
) -> Answer:
    """Write a copy of the server's folder while the server runs. It contains no key and no history.

    Example: solera federation backup films -o films-monday.tar.gz
    """
    from solera.federation.operate.backup import backup as write

    told = write(folder, to, wait=wait)
    told["files"] = len(told.pop("sha256"))
    size = told["bytes"] / 2**20
    said = f"{to}: {told['files']} files, {size:.1f} MiB, {told['rounds_done']} rounds are done"
    return Answer(told, [Line(said)])


@answers
def restore(
    source: Annotated[Path, typer.Argument(metavar="FILE", help="File made by `backup`.")],
    folder: Folder,
    lost_rounds: Annotated[
        int | None, typer.Option(help="With --dp or masks: rounds that ran after the backup, at most.", min=0)
    ] = None,
) -> Answer:
    """Restore a server's folder. What was there is moved aside. The server must be stopped.

    With --dp or masks, rounds that ran after the backup are not run again, and their ε stays spent.

    Example: solera federation restore films-monday.tar.gz films
    """
    from solera.federation.operate.backup import restore as read

    told = read(source, folder, lost_rounds=lost_rounds)
    told["files"] = len(told.pop("sha256"))
    said = [Line(f"{folder} is as it was after round {told['rounds_done']}")]
    if told["lost_rounds"]:
        said.append(Line(f"{told['lost_rounds']} later rounds count as lost"))
    if told["former"] is None:
        said.append(Line("keys revoked after the backup: revoke them again"))
    else:
        said.append(Line(f"the former folder is {told['former']}", "dim"))
    return Answer(told, said)


def _sentence(line: dict[str, Any]) -> str:
    """An event or a round in words."""
    from solera.cli.demo import figures

    at = _clock(line.get("time", time.time()))
    if "event" not in line:
        return f"{at} round {line['round']} · {figures(line)}"
    known = ("time", "event", "hint", "round_id")
    rest = " · ".join(f"{name} {value}" for name, value in line.items() if name not in known)
    return f"{at} {line['event']}{' · ' if rest else ''}{rest}"


def _page(found: dict[str, Any]) -> str:
    """The status for people."""
    serving, server, rounds, versions = (found[name] for name in ("serving", "server", "rounds", "versions"))
    last, epsilon, now = rounds["last"], found["epsilon"], found["time"]
    lines = [f"federation {found['federation'][:8]} in {found['folder']}"]
    lines.append(
        f"nodes      {server['online']} of {server['registered']} online" if server else "nodes      unknown"
    )
    if serving:
        due = serving["next_due"]
        when = f", next run due {_clock(due)} UTC" if due and serving["state"] == "waiting" else ""
        lines.append(f"serving    {serving['state']}{when}")
    lines.append(f"rounds     {rounds['done']} done, {rounds['void']} void")
    if last:
        lines.append(
            f"last round {duration(now - last['time'])} ago: {last['clients']} users"
            f" on {last['nodes']} nodes, {last['seconds']:.1f} s"
        )
    runs = ", ".join(f"{count} {kind}" for kind, count in found["runs"].items())
    lines.append(f"runs       {runs}")
    if found["rejected"]:
        refused = ", ".join(f"{count} {reason}" for reason, count in found["rejected"].items())
        lines.append(f"rejected   {refused}")
    if epsilon:
        lines.append(f"privacy    ε = {epsilon['spent']:.3g} of {epsilon['total']:.3g} spent")
    if versions["kept"]:
        canary = f", canary {versions['canary']}" if versions["canary"] else ""
        lines.append(f"versions   published {versions['published'] or 'none'}{canary}")
        for each in versions["kept"]:
            rate = "" if each["hit_rate"] is None else f", hit rate {each['hit_rate']:.3f}"
            lines.append(f"  {each['number']:>4}     round {each['round']}, {each['outcome']}{rate}")
    lines += [f"problem    {text}" for text in found["problems"]]
    return "\n".join(lines)


def _clock(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
