"""ε against closed forms, the Rényi formula by hand and simulation, none of which uses the library."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solera.core.errors import ConfigError
from solera.dp.accounting import Releases, epsilon, multiplier_for
from solera.dp.settings import DP


def above(x: float) -> float:
    """The probability of a standard normal variable above x."""
    return math.erfc(x / math.sqrt(2)) / 2


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Balle & Wang 2018, Theorem 8, solved for ε by another solver on another normal distribution."""
    from scipy.optimize import brentq

    def excess(e: float) -> float:
        return above(e / mu - mu / 2) - math.exp(e) * above(e / mu + mu / 2) - delta

    return float(brentq(excess, 0, 200, xtol=1e-12))


@pytest.mark.parametrize(
    ("noise", "rounds", "delta"),
    [(0.6, 1, 1e-5), (1.0, 1, 1e-5), (3.73, 1, 1e-5), (5.0, 10, 1e-6), (20.0, 100, 1e-7), (0.8, 4, 1e-3)],
)
def test_without_sampling_it_is_the_analytic_gaussian(noise: float, rounds: int, delta: float) -> None:
    expected = gaussian_epsilon(math.sqrt(rounds) / noise, delta)
    found = DP(noise=noise, delta=delta).resolved(Releases(1.0, rounds))
    assert found.accountant == "analytic"
    assert found.epsilon == pytest.approx(expected, rel=1e-7)
    # The library's privacy loss distributions bound it from above, and closely.
    pld = epsilon(noise, Releases(1.0, rounds), delta, "pld")
    assert expected <= pld * (1 + 1e-9)
    assert pld == pytest.approx(expected, abs=2e-3 * rounds**0.5 + 1e-2)


def test_a_known_value() -> None:
    """σ = 1, ε = 1: Φ(−½) − e · Φ(−3/2) = 0.308538 − 2.718282 · 0.066807 = 0.126936."""
    found = DP(noise=1.0, delta=0.126936).resolved(Releases(1.0, 1)).epsilon
    assert found == pytest.approx(1.0, abs=1e-5)


def renyi_epsilon(noise: float, rate: float, rounds: int, delta: float) -> float:
    """Mironov et al. 2019 for whole orders: E[(1 − q + q e^((2x−1)/2σ²))^α] written out; as Opacus has it."""
    best = math.inf
    for a in range(2, 257):
        terms = [
            math.lgamma(a + 1)
            - math.lgamma(k + 1)
            - math.lgamma(a - k + 1)
            + (a - k) * math.log1p(-rate)
            + k * math.log(rate)
            + k * (k - 1) / (2 * noise**2)
            for k in range(a + 1)
        ]
        top = max(terms)
        renyi = (top + math.log(sum(math.exp(t - top) for t in terms))) / (a - 1)
        best = min(best, rounds * renyi + math.log1p(-1 / a) - math.log(delta * a) / (a - 1))
    return best


SAMPLED = [
    (1.1, 0.01, 1000, 1e-5),
    (1.1, 0.1, 30, 1e-5),
    (2.0, 0.2, 100, 1e-6),
    (0.8, 0.05, 50, 1e-5),
    (4.0, 0.5, 20, 1e-4),
    (0.7, 0.001, 500, 1e-6),
]


@pytest.mark.parametrize(("noise", "rate", "rounds", "delta"), SAMPLED)
def test_renyi_with_sampling_is_the_formula_by_hand(
    noise: float, rate: float, rounds: int, delta: float
) -> None:
    asked = DP(noise=noise, delta=delta, accountant="rdp")
    expected = renyi_epsilon(noise, rate, rounds, delta)
    assert asked.resolved(Releases(rate, rounds)).epsilon == pytest.approx(expected, rel=1e-6)
    assert epsilon(noise, Releases(rate, rounds), delta, "pld") < expected  # which is tighter


def one_round_delta(noise: float, rate: float, eps: float) -> float:
    """Hockey-stick divergence of (1−q)N(0,σ²) + qN(1,σ²) and N(0,σ²), both ways, in closed form."""
    at = noise**2 * math.log((math.exp(eps) - 1 + rate) / rate) + 0.5
    add = (1 - rate - math.exp(eps)) * above(at / noise) + rate * above((at - 1) / noise)
    if math.exp(-eps) <= 1 - rate:
        return float(add)
    at = noise**2 * math.log((math.exp(-eps) - 1 + rate) / rate) + 0.5
    mixture = (1 - rate) * above(-at / noise) + rate * above(-(at - 1) / noise)
    return float(max(add, above(-at / noise) - math.exp(eps) * mixture))


@pytest.mark.parametrize(
    ("noise", "rate", "delta"),
    [(1.0, 0.1, 1e-5), (0.6, 0.2, 1e-4), (2.0, 0.5, 1e-3), (0.9, 0.01, 1e-6), (0.5, 0.3, 1e-5)],
)
def test_one_sampled_round_is_the_closed_form(noise: float, rate: float, delta: float) -> None:
    from scipy.optimize import brentq

    expected = brentq(lambda e: one_round_delta(noise, rate, e) - delta, 1e-9, 60)
    found = epsilon(noise, Releases(rate, 1), delta, "pld")
    assert expected - 1e-9 <= found <= expected + 3e-3  # rounded up, by its discretisation


def test_many_sampled_rounds_by_simulation() -> None:
    """δ(ε) = E max(0, 1 − e^(ε − L)) over the privacy loss L of 30 rounds, drawn 400,000 times."""
    noise, rate, rounds, delta = 1.0, 0.2, 30, 0.02
    found = epsilon(noise, Releases(rate, rounds), delta, "pld")
    draw = np.random.default_rng(0)
    loss = np.zeros(400_000)
    for _ in range(rounds):
        x = draw.normal(0, noise, len(loss)) + (draw.random(len(loss)) < rate)
        loss += np.log1p(rate * np.expm1((2 * x - 1) / (2 * noise**2)))
    each = np.maximum(0, -np.expm1(found - loss))
    error = each.std() / math.sqrt(len(each))
    assert each.mean() == pytest.approx(delta, abs=4 * error + 2e-4)


noises, rates, counts = st.floats(0.5, 20), st.floats(0.001, 1), st.integers(1, 300)


@given(noises, rates, counts, st.sampled_from(["noise", "rounds", "rate"]), st.floats(0.1, 0.95))
def test_more_noise_fewer_rounds_or_a_smaller_sample_never_raise_it(
    noise: float, rate: float, rounds: int, what: str, by: float
) -> None:
    before = epsilon(noise, Releases(rate, rounds), 1e-5, "rdp")
    match what:
        case "noise":
            after = epsilon(noise / by, Releases(rate, rounds), 1e-5, "rdp")
        case "rounds":
            after = epsilon(noise, Releases(rate, max(1, int(rounds * by))), 1e-5, "rdp")
        case _:
            after = epsilon(noise, Releases(rate * by, rounds), 1e-5, "rdp")
    assert after <= before * (1 + 1e-9)


@pytest.mark.parametrize("accountant", ["pld", "rdp"])
def test_monotone_along_a_line(accountant) -> None:
    by_noise = [epsilon(z, Releases(0.1, 30), 1e-5, accountant) for z in (0.7, 0.9, 1.2, 2.0, 4.0)]
    by_rate = [epsilon(1.0, Releases(q, 30), 1e-5, accountant) for q in (0.5, 0.2, 0.1, 0.05, 0.01)]
    by_rounds = [epsilon(1.0, Releases(0.1, t), 1e-5, accountant) for t in (200, 100, 30, 10, 1)]
    for line in (by_noise, by_rate, by_rounds):
        assert line == sorted(line, reverse=True)
        assert line[0] > line[-1]


@pytest.mark.parametrize("accountant", ["pld", "rdp"])
@pytest.mark.parametrize("wanted", [1.0, 4.0])
def test_the_noise_for_an_epsilon_gives_it_and_no_less_noise_does(accountant, wanted: float) -> None:
    releases = Releases(0.1, 30)
    noise = multiplier_for(wanted, releases, 1e-5, accountant)
    assert epsilon(noise, releases, 1e-5, accountant) <= wanted
    assert epsilon(noise * 0.998, releases, 1e-5, accountant) > wanted


def test_local_is_for_every_upload_exchanged_for_any_other_in_all_rounds() -> None:
    """Sensitivity two clips, no sampling: ten rounds of noise 8 are one Gaussian of μ = 2 · √10 / 8."""
    found = DP(noise=8.0, delta=1e-5, mode="local").resolved(Releases(0.1, 10))
    assert found.epsilon == pytest.approx(gaussian_epsilon(2 * math.sqrt(10) / 8, 1e-5), rel=1e-7)
    back = DP(epsilon=found.epsilon, delta=1e-5, mode="local").resolved(Releases(0.1, 10))
    assert back.noise is not None
    assert 8.0 <= back.noise <= 8.02


def test_resolved_settings_stay_as_they_are_and_false_ones_are_refused() -> None:
    releases = Releases(0.1, 30)
    resolved = DP.parse("epsilon=8,delta=1e-5,clip=0.5").resolved(releases)
    assert resolved.resolved(releases) == resolved
    with pytest.raises(ConfigError, match=r"gives ε = "):
        resolved.resolved(Releases(0.1, 60))  # as many rounds again
    with pytest.raises(ConfigError, match="does not support sampling"):
        DP(noise=1, delta=1e-5, accountant="analytic").resolved(releases)
    with pytest.raises(ConfigError, match="probability"):
        DP(noise=1, delta=1e-5).resolved(Releases(50, 30))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("epsilon=8", "delta"),
        ("delta=1e-5", "epsilon or noise"),
        ("epsilon=8,delta=2", "less than 1"),
        ("epsilon=8,delta=1e-5,clip=0", "greater than 0"),
        ("epsilon=8,delta=1e-5,mode=shuffled", "mode"),
        ("epsilon=8,delta=1e-5,nosie=1", "nosie"),
        ("epsilon=inf,delta=1e-5", "finite"),
        ("eight", "key=value"),
        ("epsilon=8,delta=1e-5,mode=local,adaptive=0.5", "adaptive"),
    ],
)
def test_wrong_settings_say_what_is_wrong(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        DP.parse(text)
