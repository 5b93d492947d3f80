"""From studies to presets: the best settings of every one, as a file that the package reads."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from solera.bench.studies import Study

HEAD = "# The best settings that equal tuning found. Made by `solera bench presets`; do not edit.\n"


def presets_of(studies: Iterable[Study]) -> str:
    """The file, in TOML; the same studies give the same file."""
    ordered = sorted(studies, key=lambda study: (study.dataset, study.kind, study.label))
    return HEAD + "".join("\n" + "".join(_lines(study)) for study in ordered)


def _lines(study: Study) -> Iterator[str]:
    best, name = study.best, study.label.split("+")
    fields: dict[str, Any] = {study.kind: name[0]}
    if len(name) > 1:
        fields["plugins"] = name[1:]
    fields |= {"dataset": study.config["dataset"], "protocol": study.protocol}
    for key in ("rounds", "patience"):
        if study.config[f"preset_{key}"] is not None:
            fields[key] = study.config[f"preset_{key}"]
    fields["source"] = (
        f"best of {len(study.trials)} trials by NDCG@10 on validation items, full ranking: {best.ndcg:.4f}"
    )
    yield f'["{study.protocol}:{study.label}/{study.dataset}"]\n'
    yield from (f"{key} = {_toml(value)}\n" for key, value in fields.items())
    yield f"options = {{ {', '.join(f'{key} = {_toml(value)}' for key, value in best.options.items())} }}\n"


def _toml(value: Any) -> str:
    """Text, numbers and lists of them, which JSON writes as TOML does."""
    return f"{value:.4g}" if isinstance(value, float) and "." in f"{value:.4g}" else json.dumps(value)
