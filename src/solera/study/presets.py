"""The best settings of studies as presets that the package reads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tomli_w

from solera.runs.settings import RunConfig
from solera.study.budget import Effort, full_length
from solera.study.records import slug
from solera.study.search_space import applied
from solera.study.trials import Study

HEAD = "# The best settings that equal tuning found. Made by `solera bench presets`; do not edit.\n\n"
SWEPT = "# The best settings of a sweep: solera train --preset FILE\n\n"


def presets_of(studies: Iterable[Study]) -> str:
    """Presets in TOML. The same studies give the same text; of two of a model, the later one counts."""
    ordered = sorted(studies, key=lambda study: (study.dataset, study.kind, study.label))
    presets = {f"{study.protocol}:{slug(study.label)}/{study.dataset}": _fields(study) for study in ordered}
    return HEAD + tomli_w.dumps(presets)


def preset_of(study: Study, config: RunConfig) -> str:
    """The same of one sweep, whose trials may have changed more than options."""
    run = applied(config, study.best.options)
    fields: dict[str, Any] = {"method": run.method, "plugins": list(run.plugins), "dataset": run.dataset}
    fields |= {"protocol": run.protocol, "rounds": run.rounds, "patience": run.patience}
    fields |= {"columns": run.columns, "min_interactions": run.min_interactions, "source": _source(study)}
    if run.dp:
        asked = run.dp.model_dump(mode="json", exclude_none=True)
        fields["dp"] = ",".join(f"{key}={value}" for key, value in asked.items())
    if run.noise:
        fields["noise"] = f"laplace:{run.noise.scale:g}"
    fields["options"] = run.options
    given = {key: value for key, value in fields.items() if value not in (None, [], {})}
    return SWEPT + tomli_w.dumps({f"swept:{study.label}/{study.dataset}": given})


def _fields(study: Study) -> dict[str, Any]:
    name, plugins = _model(study)
    fields: dict[str, Any] = {study.kind: name}
    if plugins:
        fields["plugins"] = plugins
    fields |= {"dataset": study.config["dataset"], "protocol": study.protocol}
    fields |= {key: value for key, value in length(study).items() if value is not None}
    options = {key: _written(value) for key, value in study.best.options.items()}
    return fields | {"source": _source(study), "options": options}


def _model(study: Study) -> tuple[str, list[str]]:
    """Its name and plug-ins; a label may be another."""
    method, *plugins = study.label.split("+")
    return study.config.get(study.kind, method), list(study.config.get("plugins", plugins))


def length(study: Study) -> dict[str, Any]:
    """Rounds and patience of the preset."""
    if "preset_rounds" in study.config:  # of an earlier search, whose final runs had another length
        return {key: study.config.get(f"preset_{key}") for key in ("rounds", "patience")}
    if study.kind == "baseline":
        return {}
    method, plugins = _model(study)
    config = RunConfig(
        method=method, plugins=tuple(plugins), dataset=study.dataset, options=study.best.options
    )
    full = full_length(config, Effort.model_validate(study.config["effort"]), study.users)
    return {"rounds": full.rounds, "patience": full.patience}


def _written(value: Any) -> Any:
    """A number with four digits; one without a fraction then stays as it is, as results were made with it."""
    short = f"{value:.4g}" if isinstance(value, float) else ""
    return float(short) if "." in short else value


def _source(study: Study) -> str:
    found, count = study.best.ndcg, len(study.trials)
    cost = f" ({study.passes:.0f} passes)" if study.passes else ""
    return f"best of {count} trials{cost} by NDCG@10 on validation items, full ranking: {found:.4f}"
