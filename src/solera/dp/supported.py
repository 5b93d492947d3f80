"""Which methods support differential privacy, and why others do not."""

from __future__ import annotations

from solera.core.closed_form import AnyMethod
from solera.core.errors import ConfigError

_HINT = "choose a method whose aggregate is a mean over all clients, like fedmf"


def check(method: AnyMethod) -> None:
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
