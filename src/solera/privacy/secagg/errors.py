"""The one error of secure aggregation."""

from __future__ import annotations

from solera.core.errors import SoleraError


class SecAggError(SoleraError):
    """A message, a state or a request that is refused, with the reason. Nothing was given away."""
