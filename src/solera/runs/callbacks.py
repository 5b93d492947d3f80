"""Callbacks that come with the package: runs tracked in MLflow, and progress below a notebook cell."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from solera.core.errors import ConfigError
from solera.core.text import render
from solera.runs.environment import package_version
from solera.runs.folder import RunFolder
from solera.runs.result import Progress, RoundEntry, flat
from solera.runs.run import Run
from solera.runs.settings import RunConfig
from solera.runs.training import Callback, StoppedError

EXPERIMENT = "solera"
FILES = ("config.json", "environment.json", "history.jsonl", "result.json")


class Tracking(Callback):
    """Logs a run to MLflow, in addition to its folder: settings, metrics per round, result, and JSON files.

    `place` is a folder, or the URI of a server or database. Needs the extra `mlflow`. A folder gets its own
    database, which `mlflow ui` of the full package shows.
    """

    def __init__(self, place: str, config: RunConfig) -> None:
        if package_version("mlflow-skinny") is None and package_version("mlflow") is None:
            raise ConfigError("--mlflow needs MLflow", "pip install 'solera[mlflow]'")
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # MLflow would report its use to its makers
        for noisy in ("mlflow", "alembic"):
            logging.getLogger(noisy).setLevel(logging.WARNING)
        from mlflow import MlflowClient  # noqa: PLC0415, an extra, and slow to load
        from mlflow.entities import Metric, Param  # noqa: PLC0415

        self._metric = Metric
        uri, artifacts = _store(place)
        self._client = MlflowClient(tracking_uri=uri)
        known = self._client.get_experiment_by_name(EXPERIMENT)
        experiment = (
            known.experiment_id
            if known
            else self._client.create_experiment(EXPERIMENT, artifact_location=artifacts)
        )
        name = f"{config.full_method} on {Path(config.dataset).name}, {config.protocol}, seed {config.seed}"
        self.run_id: str = self._client.create_run(experiment, run_name=name).info.run_id
        params = [Param(key, str(value)) for key, value in flat(config.model_dump(mode="json"))]
        self._client.log_batch(self.run_id, params=params)
        self._heard: set[int] = set()

    def after_round(self, done: Progress) -> None:
        """Log a finished round."""
        self._round(done.entry)

    def on_end(self, run: Run) -> None:
        """Log test metrics, files, and rounds from before an interruption that were not logged yet."""
        if run.path is not None:
            for entry in RunFolder.open(run.path).history:
                if entry.round not in self._heard:
                    self._round(entry)
            for name in FILES:
                self._client.log_artifact(self.run_id, str(run.path / name))
        selected = run.result.selected_round or 0
        for name, test in run.result.tests.items():
            self._log({name: test.model_dump(exclude_none=True)}, selected)
        self._client.set_tag(self.run_id, "leaky", str(run.result.leaky).lower())
        self._client.set_tag(self.run_id, "selected_round", str(selected))
        self._client.set_terminated(self.run_id, "FINISHED")

    def on_failure(self, error: BaseException) -> None:
        """End the run as killed or failed."""
        stopped = isinstance(error, StoppedError | KeyboardInterrupt)
        self._client.set_terminated(self.run_id, "KILLED" if stopped else "FAILED")

    def _round(self, entry: RoundEntry) -> None:
        self._heard.add(entry.round)
        self._log(entry.model_dump(exclude={"round"}), entry.round)

    def _log(self, figures: Mapping[str, Any], step: int) -> None:
        names = ((key.replace("@", "_at_"), value) for key, value in flat(figures))
        metrics = [self._metric(name, float(value), 0, step) for name, value in names if value is not None]
        self._client.log_batch(self.run_id, metrics=metrics)


def _store(place: str) -> tuple[str, str | None]:
    """The location of a server or database by its URI, or of a folder with a database and files in it."""
    if ":" in place:
        return place, None
    folder = Path(place).resolve()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{place} cannot be created: {error.strerror}", "give another --mlflow") from None
    return f"sqlite:///{folder / 'mlflow.db'}", (folder / "artifacts").as_uri()


def in_notebook() -> bool:
    """Whether output appears below a notebook cell. Does not import IPython."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return type(shell).__name__ == "ZMQInteractiveShell"


class Notebook(Callback):
    """Shows a progress bar below a notebook cell, which disappears at the end."""

    def __init__(self, title: str) -> None:
        from IPython.display import HTML, display  # noqa: PLC0415 - only notebooks have it

        self._title, self._html = title, HTML
        self._handle = display(HTML(self._bar(None)), display_id=True)

    def _bar(self, done: Progress | None) -> str:
        """Finished rounds, loss and the validation metric; before the first round, only the title."""
        return render("solera.runs", "progress.html", title=self._title, done=done)

    def after_round(self, done: Progress) -> None:
        """Show a finished round."""
        self._handle.update(self._html(self._bar(done)))

    def on_end(self, run: Run) -> None:
        """Clear the bar."""
        self._handle.update(self._html(""))

    def on_failure(self, error: BaseException) -> None:
        """Clear the bar."""
        self._handle.update(self._html(""))
