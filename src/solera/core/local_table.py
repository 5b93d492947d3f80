"""Methods whose clients keep their own item table beside the shared one, which is aggregated from them.

Clients download the shared table "items" but do not train it. They train "items.local", which has the same
initial values, stays on the client between rounds, and is what they upload. Any method with a shared item
table can be converted: its parts then use the client's table in place of "items".
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from solera.core.choices import Stage, View, view_knows
from solera.core.context import Batch, RoundContext
from solera.core.errors import ConfigError
from solera.core.method import Method
from solera.core.spec import Home, Leaf, Params
from solera.core.wrappers import ITEMS, Around

LOCAL = "items.local"


def require_shared_table(method: Method, plugin: str) -> None:
    """Raise an error for a method that has no shared item table, or already has a local one."""
    tables = {leaf.name: leaf for leaf in method.leaves if leaf.per_item}
    if any(leaf.fades_with for leaf in tables.values()):
        raise ConfigError(
            f"{plugin!r} cannot be used with {method.name!r} if weight decay acts on all rows: it changes "
            "how tables are trained and sent",
            "add -o decay=touched",
        )
    if LOCAL in tables:
        raise ConfigError(
            f"{plugin!r} cannot be used with {method.name!r}: its clients already have a table of their own "
            "beside the shared one, and only one rule can set it",
            "leave one of them out",
        )
    if ITEMS not in tables or tables[ITEMS].home is not Home.SHARED or not tables[ITEMS].upload:
        raise ConfigError(
            f"{plugin!r} cannot be used with {method.name!r}: it has no shared item table that clients "
            "train and send, so there is nothing to mix with",
            "choose a method whose view has one; `solera methods` shows the views",
        )


def with_local_table(leaves: tuple[Leaf, ...]) -> tuple[Leaf, ...]:
    """A view's leaves, with an added local table that is trained and sent in place of the shared one."""
    (items,) = (leaf for leaf in leaves if leaf.name == ITEMS)
    local = replace(items, name=LOCAL, home=Home.PERSONAL, upload=False, feeds=ITEMS)
    return (*(replace(leaf, upload=False) if leaf is items else leaf for leaf in leaves), local)


def on_local_table(stage: Stage, view: View) -> Stage:
    """A stage that trains and sees the local table instead of the shared one."""
    return replace(
        stage,
        moves=tuple(move.renamed({ITEMS: LOCAL}) for move in stage.moves),
        view=on_local(stage.view or view),
    )


def on_local(view: View) -> View:
    """The view with the local table in place of the shared one."""
    return OnLocalKnowing(view) if view_knows(view) else OnLocal(view)


@dataclass(frozen=True)
class OnLocal(Around):
    """A view that uses the client's local table as "items"."""

    @property
    def label(self) -> str:
        """The inner view's label, on the local table."""
        return f"{self.inner.label}, on the local table"

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """The inner view's leaves and the local table."""
        return with_local_table(self.inner.leaves)

    @property
    def keeps(self) -> tuple[str, ...]:
        """The leaves the inner view keeps, except the item table, which is the client's own."""
        return tuple(name for name in self.inner.keeps if name != ITEMS)

    def table(self, params: Params) -> Tensor:
        """The local table."""
        return params[LOCAL]


@dataclass(frozen=True)
class OnLocalKnowing(OnLocal):
    """`OnLocal` for a view with an analytic gradient."""

    def gradient(self, params: Params, slope: Tensor, batch: Batch, context: RoundContext) -> Params:
        """The inner view's gradients, with the gradient by "items" assigned to the local table."""
        found = self.inner_gradient(params, slope, batch, context)
        return {LOCAL if name == ITEMS else name: value for name, value in found.items()}
