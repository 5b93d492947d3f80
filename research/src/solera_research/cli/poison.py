"""solera poison: attacks by malicious clients on recommendations, and defences."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from solera.cli.catalogue import method_names
from solera.cli.options import (
    DataDir,
    OptionalData,
    Options,
    Plugins,
    PresetName,
    Threads,
    parse_pairs,
    takes_settings,
)
from solera.cli.output import Answer, Line, Table, answers
from solera.cli.progress import step_progress

if TYPE_CHECKING:
    from solera.runs import RunConfig
    from solera_research.poisoning.experiment import AttackPlan, Outcome
    from solera_research.poisoning.records import PoisonRecord

NONE = "none"
Attack = Literal["promotion", "alignment", "random", "sign-flip", "weight", "none"]
Defence = Literal[
    "norm-bound",
    "row-cap",
    "weight-bound",
    "peak-bound",
    "trimmed-mean",
    "median",
    "krum",
    "multi-krum",
    "grouped",
    "none",
]


@answers
@takes_settings("protocol", "seed", "min_interactions", "columns")
def poison(
    method: Annotated[
        str | None,
        typer.Argument(help="A method that averages clients' changes.", autocompletion=method_names),
    ] = None,
    data: OptionalData = None,
    preset: PresetName = None,
    plugin: Plugins = None,
    attack: Annotated[Attack, typer.Option(help="What malicious clients upload.")] = "promotion",
    malicious: Annotated[
        float, typer.Option(help="Number of malicious clients as a share of the honest ones.", min=0, max=1)
    ] = 0.01,
    boost: Annotated[
        float, typer.Option(help="Factor by which malicious changes are longer than honest ones.", min=0)
    ] = 1.0,
    targets: Annotated[int, typer.Option(help="Number of unpopular items to promote.", min=1)] = 5,
    defence: Annotated[
        Defence, typer.Option(help="Defence of the server; set its options with -o.")
    ] = "none",
    trust_weights: Annotated[
        bool, typer.Option("--trust-weights", help="Accept any number of items that clients claim to have.")
    ] = False,
    rounds: Annotated[int, typer.Option(help="Rounds to train.", min=1)] = 20,
    option: Options = None,
    *,
    settings: dict[str, Any],
    record: Annotated[Path | None, typer.Option(help="Table to add the record to.")] = None,
    threads: Threads = 0,
    data_dir: DataDir = None,
) -> Answer:
    """Train with malicious clients and measure how often their items are recommended. About a minute.

    Example: solera poison fedmf --data ml-100k --attack promotion --malicious 0.01 --boost 10

    Example: solera poison fedmf --data ml-100k --malicious 0.05 --defence trimmed-mean -o trim=0.3
    """
    from solera.runs.environment import check_committed
    from solera.runs.presets import run_settings
    from solera_research.poisoning.experiment import AttackPlan
    from solera_research.poisoning.experiment import poison as run_poison

    if record:
        check_committed(record)
    defended = defence != NONE
    config = run_settings(
        method,
        data,
        preset=preset,
        plugins=plugin or [],
        added=["robust"] if defended else [],
        options=parse_pairs(option or [], "-o learning_rate=0.05")
        | ({"robust": defence} if defended else {}),
        rounds=rounds,
        patience=0,
        **settings,
    )
    plot = AttackPlan(
        attack=attack, malicious=malicious, boost=boost, targets=targets, trust_weights=trust_weights
    )
    interactions = config.load_data(data_dir)
    with step_progress(f"{config.full_method} on {interactions.name}", rounds) as update:
        outcome = run_poison(
            config,
            interactions,
            plot,
            threads=threads,
            on_round=lambda done, loss: update(done, f"loss {loss:.4f}"),
        )
    made = _record(config, plot, outcome, threads)
    head = ("attack", "malicious", "boost", "defence", "ER@10", "NDCG@10")
    row = (plot.attack, outcome.malicious_clients, boost, made.defence, outcome.exposure, outcome.ndcg)
    title = f"{config.full_method} on {config.dataset}, {rounds} rounds, seed {config.seed}"
    said: list[Table | Line | str] = [
        Table(title, head, [row]),
        "ER@10: share of users who do not know a target in whose top 10 it is, mean over the targets\n"
        "NDCG@10: of the test items, full ranking, after the last round",
    ]
    if record:
        from solera.study.records import Store
        from solera_research.poisoning.records import PoisonRecord

        Store(record, PoisonRecord).add(made)
        said.append(Line(f"record: {made.name} in {record}"))
    return Answer(made.model_dump(mode="json"), said)


def _record(config: RunConfig, plot: AttackPlan, outcome: Outcome, threads: int) -> PoisonRecord:
    from solera_research.poisoning.records import PoisonRecord
    from solera_research.records import made_by

    return PoisonRecord(
        method="+".join(name for name in (config.method, *config.plugins) if name != "robust"),
        defence="weights believed" if plot.trust_weights else _defence(config),
        plot=plot,
        outcome=outcome,
        **made_by(config, threads),
    )


def _defence(config: RunConfig) -> str:
    """Name of the defence, with the options that differ from the defaults."""
    from solera.methods.robust import RobustConfig

    if "robust" not in config.options:
        return NONE
    usual = RobustConfig.model_validate({"robust": config.options["robust"]}).model_dump()
    return " ".join(
        [usual["robust"], *(f"{k}={config.options[k]}" for k in usual if config.options[k] != usual[k])]
    )
