"""What a run is: everything that decides its figures, and nothing else."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from solera.core.closed_form import ClosedForm
from solera.core.method import Method
from solera.methods import find

ROUNDS = 100  # of federated training, where nothing else is said


def usual_rounds(method: Method | ClosedForm) -> int:
    """How many rounds a method takes where nothing else is said."""
    return 1 if isinstance(method, ClosedForm) else ROUNDS


class RunConfig(BaseModel):
    """The settings of a run. Two runs with equal settings have equal figures."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    method: str
    dataset: str
    plugins: tuple[str, ...] = ()
    options: dict[str, Any] = Field(
        default_factory=dict, description="the method's whole config, defaults included"
    )
    protocol: str = "strict"
    rounds: int = Field(ROUNDS, ge=1)
    patience: int | None = Field(
        None, ge=1, description="rounds without a better validation figure after which training ends"
    )
    seed: int = Field(0, ge=0)
    engine: Literal["block", "reference"] = "block"
    precision: Literal["single", "double"] = "single"
    min_interactions: int | None = None
    columns: dict[str, str] | None = None
    secure_aggregation: bool = Field(
        default=False, description="uploads are added in fixed point, as under masks"
    )

    @property
    def full_method(self) -> str:
        """The method's name with its plug-ins."""
        return "+".join([self.method, *self.plugins])

    def difference(self, other: RunConfig) -> str:
        """The settings in which two runs differ, in words; empty if they are equal."""
        mine, theirs = self.model_dump(mode="json"), other.model_dump(mode="json")
        pairs = [(key, theirs[key], mine[key]) for key in mine if mine[key] != theirs[key]]
        return ", ".join(f"{key} {old!r} instead of {new!r}" for key, old, new in pairs)

    def resolved(self) -> RunConfig:
        """With every option, defaults included, and plug-ins in their order: as `train` will take it."""
        method = find(self.method, self.options, self.plugins)
        taken = {
            "plugins": tuple(method.name.split("+")[1:]),
            "options": method.config.model_dump(mode="json"),
        }
        return self.model_copy(update=taken)


class BaselineConfig(BaseModel):
    """The same for a centralized baseline."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    baseline: str
    dataset: str
    options: dict[str, Any] = Field(default_factory=dict, description="all of them, defaults included")
    protocol: str = "strict"
    seed: int = Field(0, ge=0)
    min_interactions: int | None = None
    columns: dict[str, str] | None = None
