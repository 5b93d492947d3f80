"""What the command of a served federation makes of a database that is away, and of a full disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from solera.core.errors import DeployError
from solera.federation.operate import serve
from solera.federation.server.plan import ServePlan
from solera.federation.server.serve import Serving

AWAY = DeployError("the database does not answer", "check --database")
FULL = OSError(28, "No space left on device")


class Database:
    """Connected to in the given order: an error, or a network."""

    def __init__(self, *answers: Exception | None) -> None:
        self.left = list(answers)

    def __call__(self, folder: Any) -> Database:
        if answer := self.left.pop(0):
            raise answer
        return self

    @contextmanager
    def alone(self) -> Iterator[None]:
        yield


@pytest.fixture
def served(tmp_path, monkeypatch):
    """Serves until a look at what is due is a Ctrl-C; returns what was told."""
    plan = ServePlan.model_construct(bundle=tmp_path / "x.bundle")
    monkeypatch.setattr(ServePlan, "model_validate_json", lambda text: plan)
    (tmp_path / "serve.json").write_text("{}")
    monkeypatch.setattr("solera.federation.operate.serve.time.sleep", lambda seconds: None)

    def until_interrupted(database: Database, *looks: BaseException | None) -> list[str]:
        left = [*looks, KeyboardInterrupt()]

        class Loop:
            def __init__(self, *_: Any) -> None: ...

            def step(self) -> None:
                if error := left.pop(0):
                    raise error

        monkeypatch.setattr(serve, "WebNetwork", database)
        monkeypatch.setattr(serve, "ServeLoop", Loop)
        told: list[dict[str, Any]] = []
        with pytest.raises(KeyboardInterrupt):
            serve.serve(tmp_path, told.append)
        return [line["event"] for line in told]

    return until_interrupted


def test_looks_again_and_again(served):
    assert served(Database(None), None, None, None) == ["serving"]


@pytest.mark.parametrize("error", [AWAY, FULL])
def test_what_passes_is_waited_for(served, error):
    """When it connects, and in the middle of its work."""
    assert served(Database(error, error, None)) == ["away", "away", "serving"]
    assert served(Database(None, None), None, error) == ["serving", "away", "serving"]


def test_what_does_not_pass_ends_the_command(served):
    with pytest.raises(ZeroDivisionError):
        served(Database(ZeroDivisionError()))


def test_a_full_disk_does_not_keep_the_command_from_ending(served, tmp_path, monkeypatch):
    Serving(born=0.0).write(tmp_path)

    def full(*_: Any) -> None:
        raise FULL

    monkeypatch.setattr("solera.federation.server.serve.write_atomically", full)
    assert served(Database(None)) == ["serving"]
