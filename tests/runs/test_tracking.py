"""Runs in MLflow, read back from a real store."""

from __future__ import annotations

import json
import os
import threading
from importlib.util import find_spec
from pathlib import Path

import pytest

from made_ratings import write_ratings
from solera.data.datasets import load
from solera.runs import RunConfig, RunFolder, StoppedError, train
from solera.runs.callbacks import Tracking

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
for each in ("mlflow", "sqlalchemy", "alembic"):  # found and not imported: that takes seconds
    if find_spec(each) is None:
        pytest.skip(f"needs {each}", allow_module_level=True)

CONFIG = RunConfig(method="fedmf", dataset="ratings", rounds=3, options={"embedding_size": 4}).resolved()


@pytest.fixture
def data(tmp_path):
    return load(str(write_ratings(tmp_path / "ratings.csv", users=15, items=30, each=7, seed=1)))


def tracked(place, data, out, **more):
    return train(CONFIG, data, out=out, threads=1, callbacks=[Tracking(str(place), CONFIG)], **more)


def test_settings_rounds_result_and_files_are_there(data, tmp_path):
    place = tmp_path / "tracked"
    stop = threading.Event()
    stop.set()
    with pytest.raises(StoppedError):
        tracked(place, data, tmp_path / "run", stop=stop)
    run = tracked(place, data, tmp_path / "run", resume=True)

    import mlflow

    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{place / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("solera")
    found = client.search_runs([experiment.experiment_id], order_by=["attributes.start_time ASC"])
    assert sorted(each.info.status for each in found) == ["FINISHED", "KILLED"]
    (kept,) = (each for each in found if each.info.status == "FINISHED")
    assert kept.data.params["options.embedding_size"] == "4"
    assert kept.data.params["method"] == "fedmf"
    assert kept.data.metrics["test.full.ndcg_at_10"] == run.test["full"]["ndcg@10"]
    logged = client.get_metric_history(kept.info.run_id, "validation.full.ndcg_at_10")
    history = RunFolder.open(tmp_path / "run").history
    assert {metric.step: metric.value for metric in logged} == {
        entry.round: entry.validation.full["ndcg@10"] for entry in history
    }, "rounds from before the interruption too"
    assert len(logged) == 3
    names = {file.path for file in client.list_artifacts(kept.info.run_id)}
    assert names == {"config.json", "environment.json", "history.jsonl", "result.json"}
    where = Path(kept.info.artifact_uri.removeprefix("file://"))
    assert json.loads((where / "result.json").read_text())["test"] == run.test.model_dump()
