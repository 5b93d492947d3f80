"""A federation over devices under differential privacy: what it guarantees, and what its rounds need for it.

Nodes clip every user's upload and add them up, each counting 1. In mode `central` the server covers the total
before anything is made of it; in mode `distributed` nodes cover it in shares, and their sum is all the server
sees. What is made of it is saved before anybody gets it. Beside that, nothing that others see may turn on one
user's data:

- who is asked: every node that is there, with users or without; users by coins that only the server knows,
  and of which members of a masked round learn how many users of each node were drawn
- whether a round counts: by the nodes that have answered, not by the users who were drawn
- whether a node's sum is taken: always, if its users have clipped. A tighter bound would let one user decide
  about all those beside it
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Any

from solera.core.closed_form import AnyMethod
from solera.core.errors import ConfigError, RunError
from solera.core.text import counted
from solera.core.types import Ints
from solera.device.policy import Agreement
from solera.dp.accounting import Releases, concentrated_epsilon
from solera.dp.mechanism import Clip, Gaussian
from solera.dp.noise import Randomness
from solera.dp.one_round import PrivateSum
from solera.dp.rounds import PrivateRound, PrivateRounds
from solera.dp.settings import DP, check_private, deployed
from solera.engine.one_round import Cover
from solera.federation.common.settings import Settings
from solera.federation.secure.shares import AlreadyCovered, CoveredRound

DISTRIBUTED = "--dp epsilon=8,delta=1e-5,mode=distributed"  # for example
_ROUNDING = 1 + 1e-10  # of a sum in doubles; `PrivateRound` itself is not as strict
_WITHOUT_SENSE = {"over_selection": "--over-selection", "max_norm": "--max-norm"}


class PrivateFederation:
    """The server's part. `dp` is resolved."""

    def __init__(self, dp: DP, method: AnyMethod, randomness: Randomness) -> None:
        self._dp, self._method, self._randomness = dp, method, randomness
        self.clip = dp.clip  # of all that a user sends in a round
        self.share = dp.noise if dp.mode == "distributed" else None  # in clips: what nodes add in shares

    @property
    def longest(self) -> float:
        """What is taken of a user, who clips in doubles."""
        return self.clip * _ROUNDING

    def choose(self, able: Ints, number: int) -> Ints:
        """Sample the users of a round independently (Poisson sampling)."""
        return able if self._method.one_round else self._rounds(len(able)).choose(able, number)

    def begin(self, users: int, number: int) -> PrivateRound | None:
        """What covers a round's total, of so many users who might have been drawn; see `cover`."""
        if self._method.one_round:
            return None
        rounds = self._rounds(users)
        if self.share is None:
            return rounds.begin(number, self._method.leaves, {})
        return CoveredRound(
            rounds, self._method.leaves, Gaussian(Clip(self.clip), self.share), AlreadyCovered().noise(number)
        )

    def cover(self, clients: int) -> Cover | None:
        """The same for a method of one round."""
        if not self._method.one_round:
            return None
        total = PrivateSum(self._dp, self._randomness if self.share is None else AlreadyCovered())
        return partial(total.release, channels=self._method.update.sums, clients=clients)

    def _rounds(self, users: int) -> PrivateRounds:
        assert not self._method.one_round
        return PrivateRounds(self._dp, self._method.config.clients_per_round, users, self._randomness)


def settled(settings: Settings, method: AnyMethod) -> Settings:
    """With the noise that gives the ε asked for over all rounds; what was settled before stays as it is."""
    if settings.dp is None:
        check_sums(settings, method)
        return settings
    check_private(method)
    _check_possible(settings.dp, masked=settings.secure_aggregation)
    discrete = settings.dp.model_copy(update={"accountant": "rdp"})
    dp = discrete.resolved(_releases(settings, method))
    return settings.model_copy(update={"dp": dp})


def check_sums(settings: Settings, method: AnyMethod) -> None:
    """Refuse more masked sums without noise than devices help to open."""
    sums, is_once = settings.total_rounds(method.rounds_needed), method.rounds_needed == 1
    allowed = 1 if is_once else settings.sums_without_noise
    if settings.secure_aggregation and sums > allowed:
        hint = f"add {DISTRIBUTED}"
        if not is_once:
            hint += (
                f"; or give --sums-without-noise {sums}, if every owner allows as many:"
                f" solera device policy DEVICE --sums-without-noise {sums}"
            )
        raise ConfigError(
            f"{sums} masked rounds without noise: a device helps to open"
            f" {counted(allowed, 'such sum', 'such sums')}, because several together can show what one"
            " person has",
            hint,
        )


def agreement(settings: Settings, rounds: int) -> Agreement:
    """What a federation with these settings asks owners to agree to, in so many rounds."""
    masked, dp = settings.secure_aggregation, settings.dp
    noise = dp.noise if dp and dp.mode == "distributed" else None
    epsilon = dp.epsilon if dp else None
    if dp and noise:  # as devices count it: every upload that leaves, in rounds that do not count too
        epsilon = concentrated_epsilon((rounds + max(1, rounds // 10)) / noise**2, dp.delta)
    return Agreement(
        masked=masked,
        least_nodes=settings.least_nodes if masked else None,
        least_users=settings.least_users if masked else None,
        groups=settings.groups,
        clip=dp.clip if dp else None,
        noise=noise,
        rounds=rounds,
        sums=settings.sums_without_noise if masked and not noise else None,
        epsilon=epsilon,
        evaluations=settings.evaluation_epsilon or None,
    )


def _releases(settings: Settings, method: AnyMethod) -> Releases:
    """How many times, and with what probability, a user's data are used."""
    return Releases(method.client_share, settings.total_rounds(method.rounds_needed))


def changed(former: Settings, given: dict[str, Any], method: AnyMethod, rounds_done: int) -> Settings:
    """Settings with changes that keep the privacy guarantee; others are refused."""
    wanted = former.model_copy(update=given)
    check_given(given, wanted.dp)
    if former.dp and former.dp == wanted.dp and wanted.rounds > former.rounds:
        raise RunError(
            f"ε = {former.dp.epsilon:g} was computed for {former.rounds} rounds, not for {wanted.rounds}",
            "start a new federation; its ε adds to this one's",
        )
    wanted = settled(wanted, method)
    if rounds_done and wanted.dp != former.dp:
        raise RunError(
            "--dp of a federation cannot change after its first round",
            "omit --dp to continue unchanged; or start a new federation, whose ε adds to this one's",
        )
    return wanted


def check_given(given: Collection[str], dp: DP | None) -> None:
    """Refuse options that an operator cannot set under differential privacy."""
    for name, option in _WITHOUT_SENSE.items():
        if dp is not None and name in given:
            raise ConfigError(
                f"{option} cannot be combined with --dp, which samples users at random and clips uploads",
                f"omit {option}",
            )


def statement(settings: Settings, method: AnyMethod) -> dict[str, Any] | None:
    """What the federation guarantees; nothing without --dp. The settings are settled."""
    return deployed(settings.dp, _releases(settings, method)) if settings.dp else None


def spent(settings: Settings, method: AnyMethod, released: int) -> float:
    """ε of the rounds released so far; that of all rounds is the most it can become."""
    assert settings.dp is not None
    if not released:
        return 0.0
    so_far = settings.dp.model_copy(update={"epsilon": None}).resolved(
        Releases(method.client_share, released)
    )
    assert so_far.epsilon is not None
    return so_far.epsilon


def _check_possible(dp: DP, *, masked: bool) -> None:
    """Refuse --dp settings that only the simulator supports so far."""
    if dp.mode == "local":
        why = "the server sees answers to attempts that do not count as well, which are not accounted for yet"
        raise ConfigError(f"mode=local is not supported on devices yet: {why}", "omit mode=…")
    if dp.accountant not in (None, "rdp"):
        raise ConfigError(
            f"accountant={dp.accountant} needs Gaussian noise, but on devices the noise is discrete",
            "choose accountant=rdp, or omit accountant=…",
        )
    if dp.adaptive is not None:
        raise ConfigError("an adaptive clip is not supported on devices yet", "omit adaptive=…")
    if dp.mode == "distributed" and not masked:
        raise ConfigError(
            "mode=distributed protects users only if the server sees nothing but sums",
            "add --secure-aggregation",
        )
    if dp.mode == "central" and masked:
        raise ConfigError(
            "--secure-aggregation needs noise that the nodes add themselves", "add mode=distributed to --dp"
        )
