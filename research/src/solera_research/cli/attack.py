"""solera attack: what a server could learn about single people from what their devices upload."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from solera.cli.catalogue import method_names
from solera.cli.options import (
    DataDir,
    OptionalData,
    Options,
    Plugins,
    PresetName,
    Threads,
    parse_numbers,
    parse_pairs,
    takes_settings,
)
from solera.cli.output import Answer, Line, Table, answers
from solera.cli.progress import step_progress

if TYPE_CHECKING:
    from solera.runs import RunConfig
    from solera_research.inference.figures import Finding
    from solera_research.inference.records import AttackRecord

ABOUT = {
    "touched": "the row is in the upload at all",
    "popularity": "touched rows by public popularity: no look at the changes",
    "norm": "length of a row's change",
    "sign": "change along the main direction of all changes",
    "shadow": "a network that learned on made-up clients",
    "shadow+popularity": "the same, with public popularity",
}
COLUMNS = ("", "clients", "AUC", "prec.", "touched", "any: AUC", "any: prec.")


@answers
@takes_settings("protocol", "dp", "noise", "min_interactions", "columns")
def attack(
    method: Annotated[
        str | None,
        typer.Argument(
            help="Method, or the folder of a run, whose first rounds are repeated.",
            autocompletion=method_names,
        ),
    ] = None,
    data: OptionalData = None,
    preset: PresetName = None,
    plugin: Plugins = None,
    rounds: Annotated[int, typer.Option(help="Rounds to train.", min=1)] = 5,
    attacked: Annotated[
        str | None,
        typer.Option(help="Rounds whose uploads are attacked, e.g. 1,5 (default: first and last)."),
    ] = None,
    sums: Annotated[
        str, typer.Option(help="Numbers of clients whose uploads the attacker sees as one sum.")
    ] = "1,2,5,20,100",
    clients: Annotated[int, typer.Option(help="Number of clients to attack.", min=1)] = 100,
    seed: Annotated[int | None, typer.Option(help="Seed of all random numbers (0).", min=0)] = None,
    option: Options = None,
    *,
    settings: dict[str, Any],
    record: Annotated[Path | None, typer.Option(help="Table to add the record to.")] = None,
    threads: Threads = 0,
    data_dir: DataDir = None,
) -> Answer:
    """Infer from clients' uploads which items they interacted with. Takes about a minute.

    Example: solera attack fedmf --data ml-100k --rounds 5

    Example: solera attack --preset paper:pfedclr/ml-100k --sums 1,2,20

    Example: solera attack fedmf --data ml-100k --dp epsilon=8,delta=1e-5,mode=local

    Example: solera attack runs/fedmf-ml-100k-strict-s0 --rounds 3 --record attacks.parquet
    """
    from solera.runs import RunFolder
    from solera.runs.environment import check_committed
    from solera.runs.presets import run_settings
    from solera.study.records import Store
    from solera_research.inference.experiment import attack as run_attack
    from solera_research.inference.records import AttackRecord

    if record:
        check_committed(record)
    looked_at, summed = parse_numbers(attacked or f"1,{rounds}", "--attacked"), parse_numbers(sums, "--sums")
    options: dict[str, Any] = parse_pairs(option or [], "-o learning_rate=0.05")
    if method is not None and Path(method).is_dir():
        _alone(
            {"--data": data, "--preset": preset, "--plugin": plugin, "-o": option}
            | {"--seed": seed}
            | {f"--{name}": settings.get(name) for name in ("dp", "noise")}
        )
        changes = {"rounds": rounds, "patience": None}
        config = RunFolder.open(Path(method)).config.model_copy(update=changes)
    else:
        config = run_settings(
            method,
            data,
            preset=preset,
            plugins=plugin or [],
            options=options,
            rounds=rounds,
            patience=0,
            seed=seed or 0,
            **settings,
        )
    interactions = config.load_data(data_dir)
    with step_progress(f"{config.full_method} on {interactions.name}", rounds) as update:
        findings = run_attack(
            config,
            interactions,
            rounds=looked_at,
            sums=summed,
            clients=clients,
            threads=threads,
            on_round=lambda done, auc: update(done, "" if auc is None else f"shadow AUC {auc:.3f}"),
        )
    made = _record(config, findings, threads)
    if record:
        Store(record, AttackRecord).add(made)
    said = [*_said(config, findings), *([Line(f"record: {made.name} in {record}")] if record else [])]
    return Answer(made.model_dump(mode="json"), said)


def _alone(given: dict[str, Any]) -> None:
    """Refuse options that the folder of a run already determines."""
    from solera.core.errors import ConfigError

    named = [name for name, value in given.items() if value is not None]
    if named:
        raise ConfigError(
            f"{', '.join(named)} cannot be given for the folder of a run: the run already has its own",
            "omit them",
        )


def _record(config: RunConfig, findings: Sequence[Finding], threads: int) -> AttackRecord:
    from solera_research.inference.records import AttackRecord
    from solera_research.records import made_by

    return AttackRecord(
        method=config.full_method,
        protection=_protection(config),
        findings=tuple(findings),
        **made_by(config, threads),
    )


def _protection(config: RunConfig) -> str:
    from solera.core.upload import PLAIN

    if config.dp:
        return f"{config.dp.mode} DP, ε = {config.dp.epsilon:.4g}"
    if config.noise:
        return f"{config.noise.kind}={config.noise.scale:g}"
    return PLAIN


def _said(config: RunConfig, findings: Sequence[Finding]) -> Iterator[Table | str]:
    for name, about in ABOUT.items():
        rows = _rows([each for each in findings if each.attack == name])
        yield Table(f"{name}: {about}", COLUMNS, rows)
    yield (
        f"{config.full_method} on {config.dataset}, protocol {config.protocol}, seed {config.seed}\n"
        "AUC: how often an item of the attacked client stands above another; 0.5 is chance\n"
        "prec.: share of the client's items among the first as many\n"
        "touched: AUC among the rows in the upload, the client's items against its negatives\n"
        "any: the same for all items that anybody in the sum has"
    )


def _rows(findings: Sequence[Finding]) -> Iterator[tuple[str | int | float | None, ...]]:
    for each in findings:
        what = each.rounds if each.summed == 1 else f"{each.rounds}, sum of {each.summed}"
        anybody = (each.anybody.auc, each.anybody.precision) if each.anybody else (None, None)
        mine = each.target
        yield what, mine.clients, mine.auc, mine.precision, mine.auc_touched, *anybody
