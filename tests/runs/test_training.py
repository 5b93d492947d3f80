"""A run ends when validation has not got better for as long as it may, and its history survives a kill."""

from __future__ import annotations

import threading

import pytest

import solera
from made_ratings import write_ratings
from solera.core.errors import ConfigError
from solera.data.datasets import load
from solera.methods import find
from solera.runs import Callback, Progress, Run, RunConfig, RunFolder, StoppedError, train
from solera.runs.training import validate_rounds


@pytest.fixture
def data(tmp_path):
    return load(str(write_ratings(tmp_path / "ratings.csv", users=25, items=30, each=7, seed=1)))


def config(**changes) -> RunConfig:
    fields = {"method": "fedmf", "dataset": "ratings", "rounds": 60, "patience": 3}
    return RunConfig.model_validate(fields | {"options": {"embedding_size": 4}} | changes)


def selections(data, **changes) -> list[float]:
    history = validate_rounds(config(**changes), data, threads=1)
    return [entry.selection for entry in history if entry.selection is not None]


def test_it_ends_after_so_many_rounds_that_are_no_better(data):
    stopped, whole = selections(data), selections(data, patience=None)
    best = max(stopped)
    assert len(stopped) == stopped.index(best) + 1 + 3 < 60
    assert stopped == whole[: len(stopped)]


def test_the_result_says_how_many_rounds_there_were(data):
    run = train(config(), data, threads=1)
    history = selections(data)
    assert run.result.rounds == len(history)
    assert run.result.selected_round == len(history) - 3


def test_a_resumed_run_ends_where_it_would_have(data, tmp_path):
    whole = train(config(), data, threads=1).result
    stop = threading.Event()
    stop.set()
    with pytest.raises(StoppedError):
        train(config(), data, out=tmp_path / "run", threads=1, stop=stop)
    resumed = train(config(), data, out=tmp_path / "run", resume=True, threads=1).result
    assert (resumed.rounds, resumed.selected_round, resumed.test) == (
        whole.rounds,
        whole.selected_round,
        whole.test,
    )


def test_a_single_round_says_how_far_it_is(data, monkeypatch):
    monkeypatch.setattr("solera.engine.one_round._TOLD_EVERY", 10)
    told = []
    one = config(method="fedease", options={}, rounds=1, patience=None)

    class Told(Callback):
        def on_clients(self, done: int, clients: int) -> None:
            told.append((done, clients))

    train(one, data, threads=1, callbacks=[Told()])
    clients = told[0][1]
    assert told == [(done, clients) for done in range(0, clients, 10)]


def test_a_method_of_one_round_takes_one_where_nothing_is_said(data):
    assert solera.train("fedease", data).result.rounds == 1


def test_the_history_survives_a_kill_in_the_middle_of_a_line(data, tmp_path):
    run = train(config(), data, out=tmp_path / "run", threads=1)
    folder = RunFolder.open(tmp_path / "run")
    whole = folder.history
    assert [entry.round for entry in whole] == list(range(1, run.result.rounds + 1))
    path = tmp_path / "run" / "history.jsonl"
    path.write_text(path.read_text() + '{"round": 99, "los')
    assert folder.history == whole


def test_a_resumed_run_has_every_round_once(data, tmp_path):
    stop = threading.Event()
    stop.set()
    with pytest.raises(StoppedError):
        train(config(), data, out=tmp_path / "run", threads=1, stop=stop)
    folder = RunFolder.open(tmp_path / "run")
    folder.add_round(
        folder.history[0].model_copy(update={"round": 2, "loss": -1.0})
    )  # as if it had been killed before its next checkpoint
    train(config(), data, out=tmp_path / "run", resume=True, threads=1)
    rounds = [entry.round for entry in folder.history]
    assert rounds == list(range(1, len(rounds) + 1))
    assert folder.history[1].loss > 0


def test_other_cutoffs_change_no_round_and_another_metric_selects(data, tmp_path):
    usual = train(config(patience=None, rounds=12), data, threads=1)
    other = train(
        config(patience=None, rounds=12, cutoffs=(3, 25), metric="hr@25"),
        data,
        out=tmp_path / "run",
        threads=1,
    )
    assert other.result.cutoffs == (3, 10, 25)
    assert other.result.shown == ("hr@3", "ndcg@3", "hr@10", "ndcg@10", "hr@25", "ndcg@25")
    rounds = RunFolder.open(tmp_path / "run").history
    assert [each.loss for each in rounds] == usual.history["loss"].to_list()
    assert [each.selection for each in rounds] == [each.validation.full["hr@25"] for each in rounds]
    best = max(rounds, key=lambda each: each.validation.full["hr@25"])
    assert other.result.selected_round == best.round
    again = solera.open_run(tmp_path / "run", data=data)
    assert again.evaluate().full["ndcg@3"] == pytest.approx(other.result.test.full["ndcg@3"])


def test_a_metric_that_is_not_computed_cannot_select():
    with pytest.raises(ConfigError, match="unknown metric 'hr@7'"):
        config(metric="hr@7")
    assert config(cutoffs=(7,), metric="hr@7").cutoffs == (7, 10)


def test_validation_of_some_rounds_and_some_users(data, tmp_path):
    """Every third round and the last of 8 are validated, on 10 of 25 users; the test is of everybody."""
    given = config(patience=None, rounds=8, evaluate_every=3, evaluate_users=10)
    run = train(given, data, out=tmp_path / "run", threads=1)
    history = RunFolder.open(tmp_path / "run").history
    assert [each.round for each in history if each.validation] == [3, 6, 8]
    assert all((each.validated, each.interval is None) == (10, False) for each in history if each.validation)
    best = max((each for each in history if each.validation), key=lambda each: each.selection or 0)
    assert run.result.selected_round == best.round
    assert run.result.evaluated_users == 25
    assert best.interval is not None
    assert best.interval[0] < (best.selection or 0) < best.interval[1]
    whole = train(config(patience=None, rounds=best.round), data, threads=1)
    assert [each.loss for each in history][: best.round] == whole.history["loss"].to_list()


def test_patience_waits_for_the_first_validation(data):
    history = validate_rounds(config(patience=2, rounds=9, evaluate_every=5), data, threads=1)
    assert [entry.round for entry in history if entry.validation] == [5]
    assert len(history) == 7


def test_an_interrupted_run_goes_on_between_validations(data, tmp_path):
    given = config(patience=None, rounds=5, evaluate_every=4)
    whole = train(given, data, threads=1).result
    stop = threading.Event()
    stop.set()
    with pytest.raises(StoppedError):
        train(given, data, out=tmp_path / "run", threads=1, stop=stop)
    resumed = train(given, data, out=tmp_path / "run", resume=True, threads=1).result
    assert (resumed.selected_round, resumed.test) == (whole.selected_round, whole.test)


def test_a_run_whose_parameters_stop_moving_says_so(data, caplog):
    """At SGD's rate Adam switches every unit of FedNCF's perceptron off in its first round."""
    dead = {"optimizer": "adam", "learning_rate": 0.5, "local_epochs": 10}
    train(config(method="fedncf", options=dead, rounds=8, patience=None), data, threads=1)
    assert caplog.text.count("of the clients moved, so it hardly learns") == 1
    caplog.clear()
    train(config(method="fedncf", options={"optimizer": "adam"}, rounds=8, patience=None), data, threads=1)
    assert not caplog.text


class Heard(Callback):
    """Notes every hook that is called, and ends training after two rounds."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def on_start(self, training) -> None:
        self.said.append(f"start {len(training.history)}")

    def is_done(self, training) -> bool:
        return len(training.history) == 2

    def before_round(self, number: int) -> None:
        self.said.append(f"before {number}")

    def after_round(self, done: Progress) -> None:
        self.said.append(f"after {done.rounds_done} of {done.rounds}")

    def on_end(self, run: Run) -> None:
        self.said.append(f"end {run.result.rounds}")

    def on_failure(self, error: BaseException) -> None:
        self.said.append(type(error).__name__)


def test_a_callback_hears_of_a_run_and_can_end_it(data):
    heard = Heard()
    train(config(patience=None), data, threads=1, callbacks=[heard])
    assert heard.said == ["start 0", "before 0", "after 1 of 60", "before 1", "after 2 of 60", "end 2"]


def test_a_callback_hears_of_a_stop_and_of_an_error(data, tmp_path):
    heard, stop = Heard(), threading.Event()
    stop.set()
    with pytest.raises(StoppedError):
        train(config(), data, out=tmp_path / "run", threads=1, stop=stop, callbacks=[heard])
    assert heard.said == ["start 0", "before 0", "after 1 of 60", "StoppedError"]
    again = Heard()
    train(config(), data, out=tmp_path / "run", resume=True, threads=1, callbacks=[again])
    assert again.said == ["start 1", "before 1", "after 2 of 60", "end 2"]


def test_a_method_is_built_once_in_a_run(data, monkeypatch):
    built = []

    def counted(*given):
        built.append(given)
        return find(*given)

    monkeypatch.setattr("solera.methods.find", counted)
    solera.train("fedmf", data, rounds=1, embedding_size=4)
    assert len(built) == 1


def test_settings_of_0_2_are_read_under_their_new_names(data):
    old = {
        "at": (7,),
        "select_by": "hr@7",
        "test_twice": False,
        "wire": {"kind": "paper-laplace", "scale": 0.5},
    }
    new = {"cutoffs": (7,), "metric": "hr@7", "both_tests": False, "noise": "laplace:0.5"}
    assert config(**old) == config(**new)
    with pytest.warns(FutureWarning, match="at is now called cutoffs"):
        assert solera.train("fedmf", data, rounds=1, embedding_size=4, at=(3,)).result.cutoffs == (3, 10)
