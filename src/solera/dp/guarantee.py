"""The privacy statement of a run."""

from __future__ import annotations

from typing import Any

from solera.dp.accounting import Releases, epsilon
from solera.dp.settings import DP, SEEDED, SYSTEM

_NOT_COVERED = (
    "figures on validation and test items, training loss and numbers of clients, which are for research",
    "the choice of settings, where it was made on the same data",
    "what a user's own device keeps and shows",
    "what the lowest bits of floating-point noise give away",
)
_SEEN_BY = {
    "central": "whoever sees the models; the server sees single uploads and is trusted",
    "local": "the server too, which sees single uploads",
    "distributed": "whoever sees the models; the server sees sums alone if secure aggregation holds",
}
_SEEN_BY_OVER_DEVICES = {
    "central": "whoever sees the models, other nodes too; the server sees nodes' sums and is trusted",
    "distributed": "whoever sees the models; the server, which knows who takes part, sees sums alone",
}
_NOT_COVERED_OVER_DEVICES = (
    "how many users there are, which nodes are there and answer in time, what the operator sees of rounds",
    *_NOT_COVERED[1:3],
    "other federations that the same users take part in, whose ε adds up",
)


def deployed(dp: DP, releases: Releases) -> dict[str, Any]:
    """The privacy statement of a federation over devices."""
    stated = guarantee(dp, releases)
    if dp.mode == "distributed":
        stated["dropout"] = (
            "a threshold of a round's nodes has all the noise, and no sum over fewer is opened"
        )
    return stated | {
        "against": _SEEN_BY_OVER_DEVICES[dp.mode],
        "randomness": SYSTEM,
        "noise": "discrete Gaussian, exact",
        "not_covered": list(_NOT_COVERED_OVER_DEVICES),
    }


def guarantee(dp: DP, releases: Releases) -> dict[str, Any]:
    """ε and δ, what they protect against, and the assumptions. `dp` must be resolved."""
    assert dp.noise is not None and dp.accountant is not None
    local = dp.mode == "local"
    sampling = f"Poisson, each user with probability {releases.rate:g} a round, kept secret"
    stated: dict[str, Any] = {
        "guarantee": "differential privacy",
        "epsilon": dp.epsilon,
        "delta": dp.delta,
        "unit": "user",
        "neighbouring": "replace one user's data" if local else "add or remove one user",
        "mode": dp.mode,
        "against": _SEEN_BY[dp.mode],
        "sampling": "none counted on" if local or releases.rate == 1 else sampling,
        "rounds": releases.rounds,
        "clip": dp.clip,
        "noise_multiplier": dp.noise,
        "accountant": dp.accountant,
        "randomness": SEEDED,
        "weights": "every user counts 1",
        "not_covered": list(_NOT_COVERED),
    }
    if dp.adaptive is not None:
        stated["adaptive_clip_quantile"] = dp.adaptive
    if dp.threshold is not None:
        stated["threshold"] = dp.threshold
    if dp.mode == "distributed":
        stated["dropout"] = (
            f"up to {dp.dropout:.0%} of the expected clients may be missing, or the round is given up"
        )
        known = Releases(1.0, releases.rounds)
        stated["epsilon_if_it_is_known_who_takes_part"] = epsilon(dp.noise, known, dp.delta, "rdp")
    return stated
