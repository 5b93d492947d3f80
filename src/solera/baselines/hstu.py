"""HSTU: attention whose weights do not sum to one, gated, with biases for distances and time intervals.

Zhai et al., "Actions Speak Louder than Words: Trillion-Parameter Sequential Transducers for Generative
Recommendations" (ICML 2024), with blocks `hstu` of `math.transformer`. Training: `baselines.sequences`.

The public code knows the time of the request, which is that of the held-out item, and biases attention by the
time from each item to it. Here that is `time=intervals` with `request_time=true`. Without the latter, an
interval ends at the last item seen, which every other model knows as well.
"""

from __future__ import annotations

from typing import Literal

from pydantic import ValidationInfo, field_validator

from solera.baselines.clock import Clock
from solera.baselines.sequences import SequenceConfig, SequenceModel, fit
from solera.baselines.training import OnEpoch
from solera.data.interactions import Split


class HSTUConfig(SequenceConfig):
    """Settings of HSTU."""

    time: Literal["none", "intervals"] = "none"
    """Whether attention is biased by the time between two items."""
    request_time: bool = False
    """Whether the time of the request is known; needs `time=intervals`."""

    @field_validator("request_time")
    @classmethod
    def _needs_intervals(cls, request_time: bool, info: ValidationInfo) -> bool:
        if request_time and info.data.get("time") != "intervals":
            raise ValueError("needs time=intervals")
        return request_time


class HSTU(SequenceModel):
    """A fitted HSTU."""

    @classmethod
    def fit(
        cls, split: Split, config: HSTUConfig | None = None, seed: int = 0, on_epoch: OnEpoch | None = None
    ) -> HSTU:
        """Train on all users' training items, until validation items are ranked no better."""
        config = config or HSTUConfig()
        clock = Clock(split, request_time=config.request_time) if config.time == "intervals" else None
        network = config.network("hstu", intervals=clock is not None)
        return cls(network, fit(split, network, config, seed=seed, on_epoch=on_epoch, clock=clock), clock)
