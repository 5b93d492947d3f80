"""The privacy requested with --dp: the noise it needs, the methods it fits, and a run's statement.

And --noise, which guarantees nothing.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from solera.core.errors import ConfigError
from solera.core.frozen import Frozen
from solera.dp.accounting import Accountant, Releases, epsilon, multiplier_for

if TYPE_CHECKING:
    from solera.core.closed_form import AnyMethod


Mode = Literal["central", "local", "distributed"]
_EXAMPLE = "write --dp epsilon=8,delta=1e-5,clip=1"
_ROUNDING = 1 + 1e-6  # tolerance, because a stated ε may be printed and read again


class DP(Frozen):
    """User-level differential privacy of a whole run. Either `epsilon` or `noise` is given."""

    epsilon: float | None = Field(default=None, gt=0)
    delta: float = Field(gt=0, lt=1)
    clip: float = Field(default=1.0, gt=0, description="L2 bound of all that a user sends in a round")
    noise: float | None = Field(default=None, gt=0, description="standard deviation of the noise, in clips")
    accountant: Accountant | None = Field(
        default=None, description="analytic without sampling, else pld; for discrete noise, rdp"
    )
    mode: Mode = Field(
        default="central", description="who adds the noise: server, every client, all clients together"
    )
    adaptive: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="quantile of upload lengths that the clip follows; `clip` is its start",
    )
    dropout: float = Field(
        default=0.2,
        ge=0,
        lt=1,
        description="mode distributed: share of the expected clients that may be missing",
    )
    threshold: float | None = Field(
        default=None,
        gt=0,
        description="one round: noisy numbers of pairs below so many standard deviations become 0",
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.epsilon is None and self.noise is None:
            raise ValueError("give epsilon or noise")
        if self.adaptive is not None and self.mode != "central":
            raise ValueError("an adaptive clip needs mode=central")
        return self

    @classmethod
    def parse(cls, text: str) -> DP:
        """Parse `epsilon=8,delta=1e-5,clip=1`."""
        parts = [part.split("=", 1) for part in text.split(",") if part.strip()]
        if any(len(part) != 2 for part in parts):
            raise ConfigError(f"{text!r} is not of the form key=value,…", _EXAMPLE)
        try:
            return cls.model_validate({key.strip(): value.strip() for key, value in parts})
        except ValidationError as error:
            wrong = error.errors()[0]
            what = str(wrong["msg"]).removeprefix("Value error, ")
            raise ConfigError(f"--dp: {''.join(f'{p}: ' for p in wrong['loc'])}{what}", _EXAMPLE) from None

    def resolved(self, releases: Releases) -> DP:
        """A copy with accountant, noise and ε filled in. Raises an error if the noise does not give the ε."""
        if not 0 < releases.rate <= 1:
            raise ConfigError(
                f"clients_per_round={releases.rate:g} is a number of clients, but --dp needs a "
                "sampling probability",
                "give -o clients_per_round=… as a share of the clients, such as 0.1",
            )
        exact = releases.rate == 1 or self.mode == "local"
        accountant = self.accountant or (
            "rdp" if self.mode == "distributed" else "analytic" if exact else "pld"
        )
        if self.mode == "distributed" and accountant != "rdp":
            raise ConfigError(
                f"accountant={accountant} needs Gaussian noise, but with mode=distributed the noise "
                "is discrete",
                "choose accountant=rdp, or omit accountant=…",
            )
        seen = self._seen(releases)
        noise = self.noise
        if noise is None:
            assert self.epsilon is not None
            noise = multiplier_for(self.epsilon, seen, self.delta, accountant) * self._sensitivity
        found = epsilon(noise / self._sensitivity, seen, self.delta, accountant)
        if self.epsilon is not None and found > self.epsilon * _ROUNDING:
            raise ConfigError(
                f"noise={noise:g} gives ε = {found:.4g}, not {self.epsilon:g}", "omit one of the two"
            )
        stated = found if self.epsilon is None else self.epsilon
        return self.model_copy(update={"accountant": accountant, "noise": noise, "epsilon": stated})

    @property
    def covers_uploads(self) -> bool:
        """Whether clients add noise to all their numbers, so that uploads are no longer sparse."""
        return self.mode != "central"

    @property
    def _sensitivity(self) -> float:
        """Sensitivity in clips: 2 for single uploads, because one user's may be exchanged for any other."""
        return 2.0 if self.mode == "local" else 1.0

    def _seen(self, releases: Releases) -> Releases:
        """The releases an observer sees. Single uploads show who takes part, so sampling does not count."""
        return releases._replace(rate=1.0) if self.mode == "local" else releases


NO_GUARANTEE = "no guarantee"
SEEDED = "seeded: for research"  # whoever knows the seed can subtract the noise again
SYSTEM = "operating system"
_LAPLACE = "write --noise laplace:0.5"


class PaperLaplace(Frozen):
    """Laplace noise without clipping, for measurements only; `laplace` adds it."""

    kind: Literal["paper-laplace"] = "paper-laplace"
    scale: float = Field(gt=0)

    @classmethod
    def parse(cls, text: str) -> PaperLaplace:
        """Parse `laplace:0.5`, or `paper-laplace=0.5` as 0.2 wrote it."""
        kind, _, scale = text.replace("paper-laplace=", "laplace:").partition(":")
        try:
            if kind != "laplace" or not 0 < float(scale) < math.inf:
                raise ValueError
        except ValueError:
            raise ConfigError(f"{text!r} is not a valid --noise", _LAPLACE) from None
        return cls(scale=float(scale))

    @property
    def label(self) -> str:
        """A short label for this noise."""
        return f"Laplace noise {self.scale:g}, no clip: {NO_GUARANTEE}"

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise."""
        return math.sqrt(2) * self.scale

    def statement(self, rounds: int) -> dict[str, Any]:
        """The privacy statement of a run with this noise."""
        return {
            "guarantee": NO_GUARANTEE,
            "why": "noise without a clip: an upload may be as long as it likes",
            "noise": f"Laplace of scale {self.scale:g} on every number of every row",
            "epsilon": None,
            "epsilon_with_the_clip_it_lacks": 2 * rounds / self.scale,
            "that_clip": f"every upload at most 1 long in L1; proportional to it; local, {rounds} rounds",
            "randomness": SEEDED,
        }


_HINT = "choose a method whose aggregate is a mean over all clients, like fedmf"


def check_private(method: AnyMethod) -> None:
    """Raise an error for a method whose server uses more than the noisy sum of clipped uploads."""
    if method.one_round:  # its server only gets the total
        if all(each.width for each in method.update.sums.values()):
            raise ConfigError(
                f"{method.name!r} cannot send a sketch under differential privacy: the model "
                "would be computed from the noise in it",
                "omit -o sketch=…",
            )
        if method.neighbours:
            raise ConfigError(
                f"{method.name!r} cannot keep its sums sparse under differential privacy: noise covers all "
                "pairs of items, also those that no client has",
                "omit -o neighbours=…",
            )
        return
    aggregate = method.aggregate
    if not any(leaf.sent_as for leaf in method.leaves):
        why, hint = "its clients send nothing, so there is nothing to protect", "omit --dp"
    elif not method.sums_alone:
        why = f"its server needs single uploads ({aggregate.label}), and only sums are protected"
        hint = _HINT
    elif method.popularity_power:
        why = "it draws negatives by item popularity, to which no noise is added"
        hint = "omit popular-negatives"
    elif not aggregate.from_sums:
        why = (
            f"its server ({aggregate.label}) needs more than the sum of the changes: how many "
            "clients changed a row is users' data too"
        )
        hint = _HINT
    else:
        return
    raise ConfigError(f"{method.name!r} cannot be trained under differential privacy: {why}", hint)


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
