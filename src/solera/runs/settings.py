"""A run's settings: the only list of them, from which commands and Python parameters are made.

Nothing here loads torch until a method is built, so that `solera train --help` does not wait for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from solera.core.errors import ConfigError, closest
from solera.core.text import key_values
from solera.dp.accounting import Releases
from solera.dp.settings import DP, PaperLaplace, check_private, guarantee
from solera.evaluate.metrics import ALWAYS, CUTOFFS, known_metrics, with_always

if TYPE_CHECKING:
    from pathlib import Path

    from solera.core.closed_form import AnyMethod
    from solera.data.interactions import Interactions

ROUNDS = 100  # default for federated training
BOTH_UP_TO = 100_000  # users who have both tests, unless told: parameters are refreshed for one of them
VALIDATED = 10_000  # users at most that are validated in a round, unless told
RENAMED = {  # settings as 0.2 and records from before 0.3 call them
    "at": "cutoffs",
    "select_by": "metric",
    "test_twice": "both_tests",
    "second_test": "both_tests",
    "wire": "noise",
}

ProtocolName = Literal["strict", "paper", "global-time", "cold-items"]


def usual_rounds(method: AnyMethod) -> int:
    """The default number of rounds of a method."""
    return method.rounds_needed or ROUNDS


def releases(method: AnyMethod, rounds: int) -> Releases:
    """How many times, and with what probability, a user's data are used."""
    return Releases(method.client_share, method.rounds_needed or rounds)


class _Where(BaseModel):
    """The data of a run, how they are split, and the seed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    dataset: str
    protocol: ProtocolName = Field(
        default="strict", description="How test items are held out; paper leaks them into training."
    )
    seed: int = Field(default=0, ge=0, description="Seed of all random numbers.")
    min_interactions: int | None = Field(
        default=None, description="Leave out users with fewer interactions (default: as in the papers)."
    )
    columns: dict[str, str] | None = Field(
        default=None, description="Columns of your own file, e.g. user=who,item=what,time=when."
    )

    def load_data(self, data_dir: str | Path | None = None) -> Interactions:
        """Load the data that these settings name."""
        from solera.data.datasets import load  # noqa: PLC0415, loads polars

        return load(
            self.dataset,
            data_dir=data_dir,
            min_interactions=self.min_interactions,
            columns=self.columns,
        )

    @field_validator("columns", mode="before")
    @classmethod
    def _pairs(cls, columns: object) -> object:
        if isinstance(columns, str):
            return key_values(columns.split(","), "--columns user=…,item=…")
        return columns

    @model_validator(mode="before")
    @classmethod
    def _old_names(cls, given: Any) -> Any:
        """As 0.2 wrote them. Its `engine` changed no result."""
        if isinstance(given, Mapping):
            return {RENAMED.get(key, key): value for key, value in given.items() if key != "engine"}
        return given


class RunConfig(_Where):
    """The settings of a run. Two runs with equal settings have equal metrics."""

    method: str
    plugins: tuple[str, ...] = ()
    options: dict[str, Any] = Field(
        default_factory=dict, description="The method's whole config, defaults included."
    )
    rounds: int = Field(default=ROUNDS, ge=1, description="Rounds of federated training (default 100).")
    patience: int | None = Field(
        default=None, ge=1, description="End after so many rounds that are no better on validation."
    )
    precision: Literal["single", "double"] = Field(default="single", description="Of all numbers.")
    secure_aggregation: bool = Field(
        default=False, description="Add uploads in fixed point, as they are under masks."
    )
    dp: DP | None = Field(
        default=None,
        description="User-level differential privacy: epsilon=8,delta=1e-5[,clip=1]"
        "[,mode=central|local|distributed][,accountant=pld|rdp][,adaptive=0.5]; or noise=1.1,delta=1e-5.",
    )
    noise: PaperLaplace | None = Field(
        default=None, description="laplace:0.5 adds the papers' noise to uploads; it guarantees nothing."
    )
    upload: str | None = Field(default=None, description="Shorten what clients send: int8 or top-k:0.1.")
    download: str | None = Field(default=None, description="Shorten what clients receive: int8.")
    cutoffs: tuple[int, ...] = Field(
        default=CUTOFFS, min_length=1, description=f"Cutoffs of the metrics; {ALWAYS} is always among them."
    )
    metric: str | None = Field(
        default=None,
        description="Validation metric that selects the round, e.g. hr@20 (default: the protocol's).",
    )
    evaluate_users: int | None = Field(
        default=None,
        ge=1,
        description=f"Users that are validated in a round (default: all, up to {VALIDATED:,}).",
    )
    evaluate_every: int = Field(default=1, ge=1, description="Rounds from one validation to the next.")
    both_tests: bool | None = Field(
        default=None,
        description="Make test, by a model that knows the validation item, and test_train, or only the one "
        f"that refreshes nothing (default: both, up to {BOTH_UP_TO:,} users).",
    )

    @field_validator("patience", mode="before")
    @classmethod
    def _none(cls, patience: object) -> object:
        return None if patience == 0 else patience

    @field_validator("dp", mode="before")
    @classmethod
    def _dp(cls, dp: object) -> object:
        return DP.parse(dp) if isinstance(dp, str) else dp

    @field_validator("noise", mode="before")
    @classmethod
    def _noise(cls, noise: object) -> object:
        return PaperLaplace.parse(noise) if isinstance(noise, str) else noise

    @field_validator("cutoffs", mode="before")
    @classmethod
    def _numbers(cls, cutoffs: object) -> object:
        if not isinstance(cutoffs, str):
            return cutoffs
        try:
            return tuple(int(part) for part in cutoffs.split(","))
        except ValueError:
            raise ConfigError(
                f"--cutoffs {cutoffs!r} is not a list of numbers", "write --cutoffs 1,5,10"
            ) from None

    @field_validator("cutoffs")
    @classmethod
    def _in_order(cls, cutoffs: tuple[int, ...]) -> tuple[int, ...]:
        return with_always(cutoffs)

    @model_validator(mode="after")
    def _selects(self) -> Self:
        known = [f"{name}@{k}" for k in self.cutoffs for name in known_metrics()]
        if self.metric is not None and self.metric not in known:
            raise ConfigError(f"unknown metric {self.metric!r}", closest(self.metric, known))
        return self

    def __getstate__(self) -> dict[Any, Any]:
        """Without the method, which another process builds itself."""
        state = super().__getstate__()
        fields = {key: value for key, value in state["__dict__"].items() if key != "built"}
        return state | {"__dict__": fields}

    @cached_property
    def built(self) -> AnyMethod:
        """The method with its options and plug-ins, built once."""
        from solera.methods import find  # noqa: PLC0415, loads torch

        return find(self.method, self.options, self.plugins)

    @property
    def full_method(self) -> str:
        """The method's name with its plug-ins."""
        return "+".join([self.method, *self.plugins])

    def difference(self, other: RunConfig) -> str:
        """A description of the settings in which two runs differ; empty if they are equal."""
        mine, theirs = self.model_dump(mode="json"), other.model_dump(mode="json")
        pairs = [(key, theirs[key], mine[key]) for key in mine if mine[key] != theirs[key]]
        return ", ".join(f"{key} {old!r} instead of {new!r}" for key, old, new in pairs)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy with other settings. Its method is built again if that depends on them."""
        copied = super().model_copy(update=update, deep=deep)
        if update and update.keys() & {"method", "options", "plugins"}:
            copied.__dict__.pop("built", None)
        return copied

    def resolved(self) -> RunConfig:
        """A copy with every option, including defaults, and plug-ins in order: the form that `train` uses."""
        method = self.built
        if self.rounds != (method.rounds_needed or self.rounds):
            raise ConfigError(f"{method.name!r} needs one round, not {self.rounds}", "omit --rounds")
        taken: dict[str, Any] = {
            "plugins": tuple(method.name.split("+")[1:]),
            "options": method.config.model_dump(mode="json"),
        }
        if self.dp:
            self._check_private(method)
            taken["dp"] = self.dp.resolved(releases(method, self.rounds))
        self._check_coded(method)
        resolved = self.model_copy(update=taken)
        resolved.__dict__["built"] = method  # the same, with its defaults spelt out
        return resolved

    def _check_private(self, method: AnyMethod) -> None:
        check_private(method)
        if self.patience is not None:
            raise ConfigError(
                "--patience stops training based on users' data, which the --dp guarantee does not cover",
                "omit --patience",
            )
        if self.noise:
            raise ConfigError(
                "--noise adds noise without a clip, which does not improve the --dp guarantee",
                "omit --noise",
            )

    def _check_coded(self, method: AnyMethod) -> None:
        from solera.coding import check_download, check_upload  # noqa: PLC0415, loads torch

        if self.upload:
            mode = self.dp.mode if self.dp else None
            check_upload(self.upload, method, masked=self.secure_aggregation, noise=mode)
            if self.noise:
                raise ConfigError(
                    "--upload cannot be combined with --noise: noise on every number cannot be coded",
                    "omit one of them",
                )
        if self.download:
            check_download(self.download, method)

    def statement(self, method: AnyMethod) -> dict[str, Any] | None:
        """The run's privacy statement, or None. The settings must be resolved."""
        if self.dp:
            return guarantee(self.dp, releases(method, self.rounds))
        return self.noise.statement(self.rounds) if self.noise else None


class BaselineConfig(_Where):
    """The settings of a centralized baseline."""

    baseline: str
    options: dict[str, Any] = Field(default_factory=dict, description="All of them, defaults included.")


SETTINGS = tuple(
    name for name in RunConfig.model_fields if name not in ("method", "dataset", "plugins", "options")
)
