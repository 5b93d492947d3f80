"""Which methods support differential privacy, and why others do not."""

from __future__ import annotations

from solera.core.choices import FromSums, needs_single_uploads
from solera.core.closed_form import ClosedForm
from solera.core.errors import ConfigError
from solera.core.federated import AnyMethod

_HINT = "choose a method whose aggregate is a mean over all clients, like fedmf"


def check(method: AnyMethod) -> None:
    """Raise an error for a method whose server uses more than the noisy sum of clipped uploads."""
    if isinstance(method, ClosedForm):  # its server only gets the total
        if any(each.width for each in method.update.sums.values()):
            raise ConfigError(
                f"{method.name!r} cannot send a sketch under differential privacy: what is made of one "
                "would be made of its noise",
                "leave -o sketch=… out",
            )
        return
    aggregate = method.aggregate
    if not any(leaf.sent_as for leaf in method.leaves):
        why, hint = "its clients send nothing, so there is nothing to cover", "leave --dp out"
    elif needs_single_uploads(aggregate):
        why = f"its server needs single uploads ({aggregate.label}), and a sum is all that is covered"
        hint = _HINT
    elif method.popularity_power:
        why = "its negatives are drawn by how many clients have an item, which no noise covers"
        hint = "leave popular-negatives out"
    elif not (isinstance(aggregate, FromSums) and aggregate.from_sums):
        why = (
            f"what its server does ({aggregate.label}) is not made of the sum of the changes alone; how many "
            "clients touched a row is data too"
        )
        hint = _HINT
    else:
        return
    raise ConfigError(f"{method.name!r} cannot be trained under differential privacy: {why}", hint)
