"""A model written as ONNX scores as it does in torch."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest

import solera
from in_process import solera as command
from solera.core.errors import ConfigError
from solera.data.synthetic import World

pytest.importorskip("onnxscript")
onnxruntime = pytest.importorskip("onnxruntime")

from solera.adapters.onnx import export  # noqa: E402

LENGTHS = (0, 1, 2, 6)


@pytest.fixture(scope="module")
def table():
    return pl.concat(World(200, 160, 2000, seed=2).batches())


@pytest.mark.parametrize(
    "block", ["ligr", *(pytest.param(name, marks=pytest.mark.slow) for name in ("sasrec", "hstu"))]
)
def test_onnx_and_torch_score_alike(block, table, tmp_path):
    model = solera.FedSASRec(block=block, embedding_size=16, max_length=6, rounds=2, warmup=1).fit(table)
    model.save(tmp_path / "model")
    done = command("export", tmp_path / "model", "--onnx", tmp_path / "model.onnx")
    assert done.returncode == 0, done
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    about = session.get_modelmeta().custom_metadata_map
    ids = json.loads(about["items"])
    assert ids == model.data.item_map.ids.tolist()
    assert about["max_length"] == "6"
    histories = np.random.default_rng(0).integers(0, len(ids), (len(LENGTHS), 6))
    (found,) = session.run(None, {"history": histories, "lengths": np.array(LENGTHS)})
    one = session.run(None, {"history": histories[:1, :2], "lengths": np.array([2])})[0]
    for scores, history, length in zip(found, histories, LENGTHS, strict=True):
        wanted = model.recommender.newcomer_scores(history[:length]).numpy()
        np.testing.assert_allclose(scores, wanted, atol=1e-5)
        assert wanted.std() > 1e-3
    wanted = model.recommender.newcomer_scores(histories[0, :2]).numpy()
    np.testing.assert_allclose(one[0], wanted, atol=1e-5)
    assert np.abs(found[2] - found[3]).max() > 1e-3  # the history counts


def test_other_models_are_refused(table, tmp_path):
    with pytest.raises(ConfigError, match="only fedsasrec"):
        export(solera.FedEASE().fit(table), tmp_path / "none.onnx")
    assert not (tmp_path / "none.onnx").exists()
