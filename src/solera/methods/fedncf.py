"""FedNCF: federated neural collaborative filtering.

Perifanis & Efraimidis, "Federated Neural Collaborative Filtering" (Knowledge-Based Systems 2022), in the form
that later papers compare with: a multi-layer perceptron on user and item vectors.

    score(u, i) = W_3 φ(W_2 φ(W_1 [p_u ; q_i] + b_1) + b_2) + b_3       φ(x) = max(x, 0)
    local:      p_u, Q and all W, b step together
    server:     Q and all W, b ← mean of the clients'

p_u is personal; the perceptron is shared, uploaded and averaged like the items. The original's generalized
matrix factorization branch is left out, as in those papers.

The public code of FedEA, by the authors of FedEM, has FedNCF in another form: W and b stay on the client
(`perceptron=personal`) and have a weight decay of their own (`perceptron_reg`). Without this decay, the
perceptron memorizes a client's samples within a few rounds of Adam.

With `item_rate`, the perceptron has the rate η, p_u has η · `item_rate` and Q has η · n_items · `item_rate`,
by SGD. The authors of PFedRec have these rates in the public code of their IFedRec, with the same η.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from solera.core.context import MethodConfig, RoundContext, Schedule, Scheduled, TwoWidths
from solera.core.leaf import Home, Init, Leaf, Params
from solera.core.method import Method
from solera.core.parts import Adam, Move, Scorer, Sgd, Stage, Update
from solera.methods.parts import BinaryCrossEntropy, ItemTable, Mean, ThreeRates, personal


class FedNCFConfig(MethodConfig):
    """Defaults: plain SGD with the learning rate from PFedRec's paper."""

    learning_rate: Scheduled = Field(
        default=Schedule(start=0.5), description="step size of everything; with adam the default is 0.01"
    )
    hidden: TwoWidths = Field(default=(32, 16), description="widths of the two hidden layers")
    optimizer: Literal["adam", "sgd"] = Field(
        default="sgd", description="local optimiser, started afresh every round"
    )
    perceptron: Literal["shared", "personal"] = Field(
        default="shared", description="whether all clients share one perceptron, or each has its own"
    )
    perceptron_reg: float = Field(default=0.0, ge=0, description="L2 penalty on the perceptron, beside reg")
    item_rate: float = Field(
        default=0.0,
        ge=0,
        description="step size of items / (learning_rate · number of items), with sgd; 0: learning_rate",
    )

    @model_validator(mode="before")
    @classmethod
    def _adams_rate(cls, given: Any) -> Any:
        """SGD's rate is one at which Adam switches every unit of the perceptron off in its first round."""
        if isinstance(given, dict) and given.get("optimizer") == "adam":
            return {"learning_rate": 0.01, **given}
        return given

    @model_validator(mode="after")
    def _plain_steps(self) -> Self:
        if self.item_rate and (self.optimizer != "sgd" or self.perceptron_reg):
            raise ValueError("item_rate is a rate of SGD alone: add optimizer=sgd, omit perceptron_reg")
        return self


@dataclass(frozen=True)
class SharedPerceptron(Scorer):
    """A perceptron with two hidden layers on the vectors of user and item, shared by all clients."""

    embedding_size: int
    hidden: tuple[int, int]
    label: str = "shared perceptron"

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """The user vector, and weight and bias of each layer. The first weight is split into two halves."""
        d, (first, second) = self.embedding_size, self.hidden
        layers = {
            "mlp.1.user": ((first, d), 2 * d),
            "mlp.1.item": ((first, d), 2 * d),
            "mlp.1.bias": ((first,), 2 * d),
            "mlp.2.weight": ((second, first), first),
            "mlp.2.bias": ((second,), first),
            "mlp.3.weight": ((1, second), second),
            "mlp.3.bias": ((1,), second),
        }
        return (
            Leaf("user", (d,), Home.PERSONAL),
            *(
                Leaf(name, shape, Home.SHARED, Init.LINEAR, upload=True, fan_in=fan_in)
                for name, (shape, fan_in) in layers.items()
            ),
        )

    def score(self, params: Params, items: Tensor) -> Tensor:
        """The perceptron's output. The user's half of the first layer is computed once for all items."""
        user = _linear(params["user"].unsqueeze(-2), params["mlp.1.user"], params["mlp.1.bias"])
        x = torch.relu_((items @ params["mlp.1.item"].transpose(-1, -2)).add(user))
        x = torch.relu_(_linear(x, params["mlp.2.weight"], params["mlp.2.bias"]))
        return _linear(x, params["mlp.3.weight"], params["mlp.3.bias"]).squeeze(-1)


def _linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """[..., n, in], [..., out, in] and [..., out] to [..., n, out]."""
    return (x @ weight.transpose(-1, -2)).add_(bias.unsqueeze(-2))


@dataclass(frozen=True)
class PerceptronApart(Update):
    """Train all leaves together in every step, with a weight decay for the perceptron alone."""

    perceptron: tuple[str, ...]
    optimizer: type[Sgd | Adam]
    label: str = "all together"

    def stages(self, context: RoundContext) -> tuple[Stage, ...]:
        """One stage with one move and two weight decays."""
        rate, reg = context.hyper["learning_rate"], context.hyper["reg"]
        own = Move(self.perceptron, self.optimizer(rate, reg + context.hyper["perceptron_reg"]))
        return (Stage(context.local_epochs, (Move(("user", "items"), self.optimizer(rate, reg), (own,)),)),)


def fedncf(config: FedNCFConfig) -> Method:
    """Build FedNCF: shared perceptron × shared × joint × mean."""
    scorer = SharedPerceptron(config.embedding_size, config.hidden)
    perceptron = tuple(leaf.name for leaf in scorer.leaves if leaf.name != "user")
    together = PerceptronApart(perceptron, Adam if config.optimizer == "adam" else Sgd)
    return Method(
        name="fedncf",
        paper="Perifanis & Efraimidis 2022",
        config=config,
        scorer=personal(scorer) if config.perceptron == "personal" else scorer,
        view=ItemTable(config.embedding_size),
        loss=BinaryCrossEntropy(),
        update=ThreeRates(perceptron, ("user",)) if config.item_rate else together,
        aggregate=Mean(),
    )
