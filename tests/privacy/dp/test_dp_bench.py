"""Differential privacy as a part of a matrix, and of its records."""

from __future__ import annotations

import pytest

from solera.core.errors import ConfigError
from solera.runs import train
from solera.study.matrix import read_matrix
from solera.study.recording import record_of

RUN = '[[run]]\ndatasets = ["ml-100k"]\nmethods = ["fedmf"]\nrounds = 2\n'


@pytest.fixture
def entries(tmp_path, monkeypatch):
    monkeypatch.setattr("solera.study.matrix._check_data", lambda *_: None)

    def read(more: str):
        path = tmp_path / "m.toml"
        path.write_text(RUN + more)
        return read_matrix(path).entries

    return read


def test_a_matrix_asks_for_it_and_a_record_states_it(entries, small, tmp_path) -> None:
    (entry,) = entries('dp = "noise=2,delta=1e-3,clip=0.5"\n')
    assert entry.config.dp.epsilon == pytest.approx(entry.config.resolved().dp.epsilon)
    assert entry.label == f"fedmf, eps={entry.config.dp.epsilon:g}"
    train(entry.config.model_copy(update={"dataset": small.name}), small, out=tmp_path / "r", threads=1)
    record = record_of(tmp_path / "r", data=small)
    assert record.result.privacy["epsilon"] == entry.config.dp.epsilon
    assert (record.result.privacy["clip"], record.result.privacy["unit"]) == (0.5, "user")
    assert record.config["dp"]["noise"] == 2.0


def test_a_matrix_asks_for_secure_aggregation(entries) -> None:
    (plain,), (masked,) = entries(""), entries('secure_aggregation = true\nlabel = "masked"\n')
    assert (plain.config.secure_aggregation, masked.config.secure_aggregation) == (False, True)
    assert plain.asked != masked.asked


def test_a_label_cannot_hide_that_there_is_no_guarantee(entries) -> None:
    for more in ('noise = "laplace:0.5"\n', 'noise = "laplace:0.5"\nlabel = "safe"\n'):
        (entry,) = entries(more)
        assert "no guarantee" in entry.label


def test_what_does_not_fit_is_refused(entries) -> None:
    with pytest.raises(ConfigError, match="delta"):
        entries('dp = "epsilon=8"\n')
    with pytest.raises(ConfigError, match="--noise"):
        entries('dp = "noise=2,delta=1e-3"\nnoise = "laplace:0.5"\n')
