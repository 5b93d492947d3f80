"""From studies to presets: the best settings of every one, as a file that the package reads."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from solera.bench.axes import applied
from solera.bench.studies import Study
from solera.runs import RunConfig

HEAD = "# The best settings that equal tuning found. Made by `solera bench presets`; do not edit.\n"
SWEPT = "# The best settings of a sweep: solera train --preset FILE\n\n"


def presets_of(studies: Iterable[Study]) -> str:
    """The file, in TOML; the same studies give the same file."""
    ordered = sorted(studies, key=lambda study: (study.dataset, study.kind, study.label))
    return HEAD + "".join("\n" + "".join(_lines(study)) for study in ordered)


def preset_of(study: Study, config: RunConfig) -> str:
    """The same of one sweep, whose trials may have changed more than options."""
    run = applied(config, rounded(study.best.options))
    fields: dict[str, Any] = {"method": run.method, "plugins": list(run.plugins), "dataset": run.dataset}
    fields |= {"protocol": run.protocol, "rounds": run.rounds, "patience": run.patience}
    fields |= {"columns": run.columns, "min_interactions": run.min_interactions, "source": _source(study)}
    if run.dp:
        given = run.dp.model_dump(mode="json", exclude_none=True)
        fields["dp"] = ",".join(f"{key}={value}" for key, value in given.items())
    if run.wire:
        fields["wire"] = f"paper-laplace={run.wire.scale}"
    fields["options"] = run.options
    lines = (f"{key} = {_toml(value)}\n" for key, value in fields.items() if value not in (None, [], {}))
    return SWEPT + f'["swept:{study.label}/{study.dataset}"]\n' + "".join(lines)


def rounded(options: Mapping[str, Any]) -> dict[str, Any]:
    """With numbers as a preset writes them."""
    return {key: float(f"{v:.4g}") if isinstance(v, float) else v for key, v in options.items()}


def _lines(study: Study) -> Iterator[str]:
    name = study.label.split("+")
    fields: dict[str, Any] = {study.kind: name[0]}
    if len(name) > 1:
        fields["plugins"] = name[1:]
    fields |= {"dataset": study.config["dataset"], "protocol": study.protocol}
    for key in ("rounds", "patience"):
        if study.config[f"preset_{key}"] is not None:
            fields[key] = study.config[f"preset_{key}"]
    fields["source"] = _source(study)
    yield f'["{study.protocol}:{study.label}/{study.dataset}"]\n'
    yield from (f"{key} = {_toml(value)}\n" for key, value in fields.items())
    yield f"options = {_toml(study.best.options)}\n"


def _source(study: Study) -> str:
    found, count = study.best.ndcg, len(study.trials)
    return f"best of {count} trials by NDCG@10 on validation items, full ranking: {found:.4f}"


def _toml(value: Any) -> str:
    """Text, numbers and lists of them, which JSON writes as TOML does; and tables of them."""
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{key} = {_toml(each)}' for key, each in value.items())} }}"
    return f"{value:.4g}" if isinstance(value, float) and "." in f"{value:.4g}" else json.dumps(value)
