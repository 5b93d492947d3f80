"""Privacy accounting: from noise to ε and back.

`analytic` is exact: without sampling, T rounds of a Gaussian mechanism are one with √T times the
sensitivity (Balle & Wang, ICML 2018). With Poisson sampling, `pld` (privacy loss distributions, the
tightest) and `rdp` (Rényi) are upper bounds, both by Google's dp-accounting.

**Discrete noise** is accounted for by `rdp` alone. Let μ be a user's contribution, in integers, and P(x)
proportional to exp(−‖x‖² / 2σ²) on integers. Then E_P[(P(x − μ) / P(x))^k] = exp((k² − k) ‖μ‖² / 2σ²) for
integer k, as with normal noise: the normalising sums of both are the same, shifted by an integer. The
moments of a sampled mechanism follow from these by the binomial theorem, so at integer orders its divergences
are those of normal noise. The other direction is no larger, by reflection at μ / 2 (Mironov, Talwar &
Zhang 2019, Theorem 5), which maps integers to integers. Without sampling it is ρ-zCDP, as normal noise is.

Sampling and composition can be combined although clients keep a state between rounds. Assume that everything
about the other users is known. Then in every round, whatever came before, one federation releases N(s, σ²)
and the other a mixture: N(s, σ²) with probability 1 − q, and with probability q N(s + u, σ²) over the
possible states of the user, ‖u‖ ≤ clip. Hockey-stick divergences are convex, so the mixture is no worse than
its worst u, which is accounted for.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, Literal, NamedTuple

from solera.core.errors import ConfigError

Accountant = Literal["pld", "rdp", "analytic"]
_ORDERS = [*range(2, 65), 80, 96, 128, 192, 256, 512, 1024]  # integer orders, whose formula is a finite sum
_INTERVAL = 1e-3  # of the discretised privacy loss; rounded so that ε is never too small
_LEAST, _MOST = 0.02, 1e6  # range of multipliers searched
_CLOSE = 1e-3  # relative tolerance of a multiplier


class Releases(NamedTuple):
    """How often users' data are used: `rounds` times, each user with probability `rate`."""

    rate: float
    rounds: int


def epsilon(multiplier: float, releases: Releases, delta: float, accountant: Accountant) -> float:
    """The ε for which all rounds together are (ε, δ)-private, given noise of `multiplier` sensitivities."""
    if accountant == "analytic":
        if releases.rate < 1:
            raise ConfigError(
                "accountant=analytic does not support sampling of clients",
                "choose accountant=pld or accountant=rdp",
            )
        return analytic_epsilon(math.sqrt(releases.rounds) / multiplier, delta)
    if accountant == "rdp" and releases.rate == 1:
        return concentrated_epsilon(releases.rounds / multiplier**2, delta)
    return _accounted(multiplier, releases, delta, accountant)


@cache
def multiplier_for(wanted: float, releases: Releases, delta: float, accountant: Accountant) -> float:
    """The smallest noise multiplier that gives ε = `wanted`, rounded up so that ε is not exceeded."""
    low, high = _LEAST, 1.0
    if accountant == "pld":  # start from rdp, a looser, faster and close bound
        high = multiplier_for(wanted, releases, delta, "rdp")
        low = 0.85 * high
        if epsilon(low, releases, delta, accountant) <= wanted:
            low, high = _LEAST, low
    while epsilon(high, releases, delta, accountant) > wanted:
        low, high = high, 2 * high
        if high > _MOST:
            raise ConfigError(f"no noise gives ε = {wanted} in {releases.rounds} rounds", "raise epsilon=…")
    while low < high * (1 - _CLOSE):
        middle = math.sqrt(low * high)
        if epsilon(middle, releases, delta, accountant) > wanted:
            low = middle
        else:
            high = middle
    return math.ceil(high * 1e5) / 1e5


def analytic_epsilon(mu: float, delta: float) -> float:
    """ε of a Gaussian mechanism whose sensitivity is `mu` standard deviations, by bisection on δ(ε)."""
    low, high = 0.0, 1.0
    if analytic_delta(mu, 0.0) <= delta:
        return 0.0
    while analytic_delta(mu, high) > delta:
        low, high = high, 2 * high
    while high - low > 1e-10 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if analytic_delta(mu, middle) > delta else (low, middle)
    return high


def analytic_delta(mu: float, epsilon_: float) -> float:
    """Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ)   (Balle & Wang 2018, Theorem 8)."""
    first = _log_phi(mu / 2 - epsilon_ / mu)
    second = epsilon_ + _log_phi(-mu / 2 - epsilon_ / mu)
    return math.exp(first) - math.exp(min(first, second))  # second > first is a rounding error


def concentrated_epsilon(rho2: float, delta: float) -> float:
    """ε of releases that are together ρ-zCDP, with 2ρ = `rho2`: for Gaussian noise, Σ 1 / multiplier².

    It holds for discrete Gaussian noise as well: min over α > 1 of αρ + log(1 − 1/α) − log(αδ) / (α − 1)
    (Canonne, Kamath & Steinke, NeurIPS 2020, Proposition 12).
    """
    if not math.isfinite(rho2):
        return math.inf
    if rho2 <= 0:
        return 0.0

    def at(order: float) -> float:
        return order * rho2 / 2 + math.log1p(-1 / order) - math.log(order * delta) / (order - 1)

    low, high = -20.0, 40.0  # log(α − 1): the bound falls and then rises
    for _ in range(200):
        left, right = low + (high - low) / 3, high - (high - low) / 3
        if at(1 + math.exp(left)) < at(1 + math.exp(right)):
            high = right
        else:
            low = left
    return max(0.0, at(1 + math.exp(low)))


def _log_phi(x: float) -> float:
    """log Φ(x), also in the far tail where Φ underflows."""
    if x > -30:
        return math.log(math.erfc(-x / math.sqrt(2)) / 2)
    return -x * x / 2 - math.log(-x * math.sqrt(2 * math.pi)) + math.log1p(-1 / (x * x))


@cache
def _accounted(multiplier: float, releases: Releases, delta: float, accountant: Accountant) -> float:
    dp = _library()
    event = dp.GaussianDpEvent(multiplier)
    if releases.rate < 1:
        event = dp.PoissonSampledDpEvent(releases.rate, event)
    used = (
        dp.pld.PLDAccountant(value_discretization_interval=_INTERVAL)
        if accountant == "pld"
        else dp.rdp.RdpAccountant(_ORDERS)
    )
    return float(used.compose(event, releases.rounds).get_epsilon(delta))


def _library() -> Any:
    try:
        import dp_accounting  # noqa: PLC0415 - of an extra
        import dp_accounting.pld  # noqa: PLC0415
        import dp_accounting.rdp  # noqa: PLC0415
    except ImportError:
        raise ConfigError(
            "accounting needs the package dp-accounting", 'pip install "solera[privacy]"'
        ) from None
    return dp_accounting
