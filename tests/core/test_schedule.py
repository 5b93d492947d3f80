from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from solera.core.context import Schedule, Scheduled

FINITE = st.floats(min_value=0, allow_nan=False, allow_infinity=False)


class Config(BaseModel):
    rate: Scheduled


@pytest.mark.parametrize(
    ("given_", "start", "decay"),
    [
        (0.1, 0.1, 1.0),
        (1, 1.0, 1.0),
        ("0.1", 0.1, 1.0),
        ("1e-3", 1e-3, 1.0),
        ("0.1*0.97^round", 0.1, 0.97),
        ("  5e-2 * 9.9E-1 ^ round ", 0.05, 0.99),
        (".5*1^round", 0.5, 1.0),
        (Schedule(start=0.3, decay=0.5), 0.3, 0.5),
        ({"start": 0.3, "decay": 0.5}, 0.3, 0.5),
    ],
)
def test_forms(given_, start: float, decay: float) -> None:
    rate = Config.model_validate({"rate": given_}).rate
    assert (rate.start, rate.decay) == (start, decay)


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "fast",
        "0.1*0.97",
        "0.1*0.97^rounds",
        "0.1*0.97^2",
        "0.97^round",
        "0.1*^round",
        "1e*0.9^round",
        "0.1,5",
        "0.1*0.9^round+1",
        None,
        [0.1],
        {"start": 0.1, "decays": 0.9},
    ],
)
def test_anything_else_is_refused(wrong) -> None:
    with pytest.raises(ValidationError, match="rate"):
        Config.model_validate({"rate": wrong})


def test_the_first_round_is_round_0() -> None:
    schedule = Schedule(start=0.8, decay=0.5)
    assert [schedule.at(r) for r in range(4)] == [0.8, 0.4, 0.2, 0.1]
    assert Schedule(start=0.8).at(1000) == 0.8


@given(start=FINITE, decay=FINITE)
def test_json_keeps_every_digit(start: float, decay: float) -> None:
    config = Config(rate=Schedule(start=start, decay=decay))
    assert Config.model_validate_json(config.model_dump_json()) == config
    assert Config.model_validate(json.loads(json.dumps(config.model_dump(mode="json")))) == config


def test_json_reads_as_one_would_type_it() -> None:
    assert json.loads(Config.model_validate({"rate": 0.25}).model_dump_json()) == {"rate": 0.25}
    assert json.loads(Config.model_validate({"rate": "0.1*0.97^round"}).model_dump_json()) == {
        "rate": "0.1*0.97^round"
    }


def test_half_a_cosine_wave() -> None:
    """Of 2 to a twentieth of it in 100 rounds: half way down 2 · (0.05 + 0.95 / 2)."""
    rate = Config.model_validate({"rate": "2*cosine(100)"}).rate
    assert [rate.at(round_) for round_ in (0, 50, 100, 900)] == pytest.approx([2.0, 1.05, 0.1, 0.1])
    assert Config(rate=rate).model_dump() == {"rate": "2.0*cosine(100)"}
