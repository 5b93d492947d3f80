"""A run's settings: everything that determines its metrics, and nothing else."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from solera.coding.settings import check_download, check_upload
from solera.core.errors import ConfigError, closest
from solera.core.federated import AnyMethod
from solera.dp.accounting import Releases
from solera.dp.guarantee import guarantee
from solera.dp.laplace import PaperLaplace
from solera.dp.settings import DP
from solera.dp.supported import check as check_private
from solera.evaluate.metrics import CUTOFFS, NAMES, with_always
from solera.methods import find

ROUNDS = 100  # default for federated training
TWICE_UP_TO = 100_000  # users who are tested twice, unless told: everybody's parameters are refreshed for it
VALIDATED = 10_000  # users at most that are validated in a round, unless told


def usual_rounds(method: AnyMethod) -> int:
    """The default number of rounds of a method."""
    return method.rounds_needed or ROUNDS


def releases(method: AnyMethod, rounds: int) -> Releases:
    """How many times, and with what probability, a user's data are used."""
    return Releases(method.client_share, method.rounds_needed or rounds)


class RunConfig(BaseModel):
    """The settings of a run. Two runs with equal settings have equal metrics."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    method: str
    dataset: str
    plugins: tuple[str, ...] = ()
    options: dict[str, Any] = Field(
        default_factory=dict, description="the method's whole config, defaults included"
    )
    protocol: str = "strict"
    rounds: int = Field(default=ROUNDS, ge=1)
    patience: int | None = Field(
        default=None, ge=1, description="rounds without a better validation figure after which training ends"
    )
    seed: int = Field(default=0, ge=0)
    engine: Literal["block", "reference"] = "block"
    precision: Literal["single", "double"] = "single"
    min_interactions: int | None = None
    columns: dict[str, str] | None = None
    secure_aggregation: bool = Field(
        default=False, description="uploads are added in fixed point, as under masks"
    )
    dp: DP | None = Field(
        default=None, description="differential privacy of a user; with it the last round counts"
    )
    at: tuple[int, ...] = Field(default=CUTOFFS, min_length=1, description="cutoffs of the metrics")
    select_by: str | None = Field(
        default=None, description="validation metric that selects the round; None is the protocol's"
    )
    evaluate_users: int | None = Field(
        default=None, ge=1, description=f"users validated in a round; None is all up to {VALIDATED:,}"
    )
    evaluate_every: int = Field(default=1, ge=1, description="rounds from one validation to the next")
    test_twice: bool | None = Field(
        default=None,
        description="rank test items with and without the validation item in the model, under an honest "
        f"protocol; None is up to {TWICE_UP_TO:,} users",
    )
    wire: PaperLaplace | None = Field(default=None, description="noise on single uploads; no guarantee")
    upload: str | None = Field(default=None, description="coding of what clients send, e.g. int8")
    download: str | None = Field(default=None, description="coding of what clients receive, e.g. pq:8")

    @field_validator("at")
    @classmethod
    def _cutoffs(cls, at: tuple[int, ...]) -> tuple[int, ...]:
        return with_always(at)

    @model_validator(mode="after")
    def _selects(self) -> Self:
        known = [f"{name}@{k}" for k in self.at for name in NAMES]
        if self.select_by is not None and self.select_by not in known:
            raise ConfigError(f"unknown metric {self.select_by!r}", closest(self.select_by, known))
        return self

    @property
    def full_method(self) -> str:
        """The method's name with its plug-ins."""
        return "+".join([self.method, *self.plugins])

    def difference(self, other: RunConfig) -> str:
        """A description of the settings in which two runs differ; empty if they are equal."""
        mine, theirs = self.model_dump(mode="json"), other.model_dump(mode="json")
        pairs = [(key, theirs[key], mine[key]) for key in mine if mine[key] != theirs[key]]
        return ", ".join(f"{key} {old!r} instead of {new!r}" for key, old, new in pairs)

    def resolved(self) -> RunConfig:
        """A copy with every option, including defaults, and plug-ins in order: the form that `train` uses."""
        method = find(self.method, self.options, self.plugins)
        taken: dict[str, Any] = {
            "plugins": tuple(method.name.split("+")[1:]),
            "options": method.config.model_dump(mode="json"),
        }
        if self.dp:
            self._check_private(method)
            taken["dp"] = self.dp.resolved(releases(method, self.rounds))
        self._check_coded(method)
        return self.model_copy(update=taken)

    def _check_private(self, method: AnyMethod) -> None:
        check_private(method)
        if self.patience is not None:
            raise ConfigError(
                "--patience stops training based on users' data, which the --dp guarantee does not cover",
                "omit --patience",
            )
        if self.wire:
            raise ConfigError(
                "--wire adds noise without a clip, which does not improve the --dp guarantee", "omit --wire"
            )

    def _check_coded(self, method: AnyMethod) -> None:
        if self.upload:
            noise = self.dp.mode if self.dp else None
            check_upload(self.upload, method, masked=self.secure_aggregation, noise=noise)
            if self.wire:
                raise ConfigError(
                    "--upload cannot be combined with --wire: noise on every number cannot be coded",
                    "omit one of them",
                )
        if self.download:
            check_download(self.download, method, masked=self.secure_aggregation, private=self.dp is not None)

    def statement(self, method: AnyMethod) -> dict[str, Any] | None:
        """The run's privacy statement, or None. The settings must be resolved."""
        if self.dp:
            return guarantee(self.dp, releases(method, self.rounds))
        return self.wire.statement(self.rounds) if self.wire else None


class BaselineConfig(BaseModel):
    """The settings of a centralized baseline."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    baseline: str
    dataset: str
    options: dict[str, Any] = Field(default_factory=dict, description="all of them, defaults included")
    protocol: str = "strict"
    seed: int = Field(default=0, ge=0)
    min_interactions: int | None = None
    columns: dict[str, str] | None = None
