"""Configuration of a method, context of a round, and samples of a step."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import numpy as np
from pydantic import BeforeValidator, Field, PlainSerializer

from solera.core.frozen import Frozen
from solera.core.randomness import Purpose, generator

if TYPE_CHECKING:
    from torch import Tensor

_NUMBER = r"[-+.\deE]+"
_DECAY = re.compile(rf"\s*(?P<start>{_NUMBER})\s*\*\s*(?P<decay>{_NUMBER})\s*\^\s*round\s*")
_COSINE = re.compile(rf"\s*(?P<start>{_NUMBER})\s*\*\s*cosine\(\s*(?P<rounds>\d+)\s*\)\s*")
LOWEST = 0.05  # of the start, where a cosine ends


class Schedule(Frozen):
    """`start * decay^round`; a plain number is the case `decay = 1`.

    With `rounds`, half a cosine wave that falls to a twentieth in so many rounds, and stays there.
    """

    start: float = Field(ge=0)
    decay: float = Field(default=1.0, ge=0)
    rounds: int = Field(default=0, ge=0)

    def at(self, round_: int) -> float:
        """The value in a round, counted from 0."""
        if self.rounds:
            wave = (1 + math.cos(math.pi * min(1.0, round_ / self.rounds))) / 2
            return self.start * (LOWEST + (1 - LOWEST) * wave)
        return self.start * self.decay**round_


def _parse(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return value
    text = str(value)
    form = _DECAY.fullmatch(text) or _COSINE.fullmatch(text)
    parts = form.groupdict() if form else {"start": text}
    try:
        return {name: float(part) for name, part in parts.items()}
    except ValueError:
        examples = "0.1*0.97^round or 0.1*cosine(500)"
        raise ValueError(f"{value!r} is neither a number nor a schedule such as {examples}") from None


def _show(value: Schedule) -> float | str:
    if value.rounds:
        return f"{value.start!r}*cosine({value.rounds})"
    return value.start if value.decay == 1.0 else f"{value.start!r}*{value.decay!r}^round"


# A number, or a text such as "0.1*0.97^round" or "0.1*cosine(500)".
Scheduled = Annotated[Schedule, BeforeValidator(_parse), PlainSerializer(_show, return_type=float | str)]


def split_commas(value: Any) -> Any:
    """Split a comma-separated command-line value such as 32,16 into a list."""
    return [part for part in value.split(",") if part.strip()] if isinstance(value, str) else value


# Layer widths.
Width = Annotated[int, Field(ge=1)]
Widths = Annotated[tuple[Width, ...], BeforeValidator(split_commas)]
TwoWidths = Annotated[tuple[Width, Width], BeforeValidator(split_commas)]
# Decay of memories: 0 remembers only the last item, 1 forgets nothing.
Decay = Annotated[float, Field(ge=0, le=1)]
Decays = Annotated[tuple[Decay, ...], Field(min_length=1), BeforeValidator(split_commas)]


class MethodConfig(Frozen):
    """Hyper-parameters that every method has. A method's own config adds fields and may change defaults."""

    embedding_size: int = Field(default=32, ge=1, description="length of an item vector")
    learning_rate: Scheduled = Field(
        default=Schedule(start=0.1), description="step size; may be e.g. 0.1*0.97^round"
    )
    reg: float = Field(default=0.0, ge=0, description="L2 penalty on everything that is trained")
    local_epochs: int = Field(default=1, ge=1, description="passes over a client's own data per round")
    batch_size: int = Field(default=256, ge=1, description="samples per local step")
    negatives: int = Field(default=4, ge=1, description="negatives drawn per positive, anew every round")
    clients_per_round: float = Field(
        default=1.0, gt=0, description="share of the clients per round (up to 1), or their number (above 1)"
    )

    def resolve(self, round_: int) -> dict[str, float]:
        """The values of all numeric options in a round, counted from 0."""
        values = {name: getattr(self, name) for name in type(self).model_fields}
        return {
            name: value.at(round_) if isinstance(value, Schedule) else value
            for name, value in values.items()
            if isinstance(value, (Schedule, int, float))
        }


@dataclass(frozen=True)
class RoundContext:
    """The frozen settings of one round, with every schedule already resolved."""

    round: int
    n_items: int
    hyper: Mapping[str, float]
    seed: int = 0

    def generator(self, purpose: Purpose, *more: int) -> np.random.Generator:
        """A random generator for this round. It depends only on the seed, the purpose and `more`."""
        return generator(self.seed, purpose, self.round, *more)

    @property
    def local_epochs(self) -> int:
        """Passes over the client's own data."""
        return int(self.hyper["local_epochs"])

    @property
    def batch_size(self) -> int:
        """Samples per local step."""
        return int(self.hyper["batch_size"])

    @property
    def negatives(self) -> int:
        """Negatives drawn per positive."""
        return int(self.hyper["negatives"])


class Batch(NamedTuple):
    """The samples of one step, [..., n].

    `weights` sum to 1 over the n samples and are 0 for padding; `positives` are the weights of the positives
    and 0 for all others. Several samples of one item may be merged into one, with their weights added up.
    """

    weights: Tensor
    positives: Tensor
