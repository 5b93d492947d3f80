from __future__ import annotations

import json
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import torch
from torch import Tensor

from solera.core.context import Batch, MethodConfig, RoundContext
from solera.core.errors import ConfigError
from solera.core.leaf import Home, Leaf
from solera.core.method import Method
from solera.core.parts import Loss, Move, Scorer, Sgd, Stage, Update, View
from solera.core.randomness import Purpose
from solera.data.ragged import Ragged
from solera.data.sampling import ClientData
from solera.engine import BlockTraining, Simulation, train_one_by_one
from solera.methods import ALIASES, METHODS, build, names, register
from solera.methods.fedhist import SampledSoftmax
from solera.methods.parts import BinaryCrossEntropy, Dot, ItemTable, Joint, Mean

SHARED = Leaf("items", (4,), Home.SHARED, per_item=True, upload=True)


@dataclass(frozen=True)
class ToyScorer(Scorer):
    leaves: tuple[Leaf, ...] = ()
    label: str = "toy"


@dataclass(frozen=True)
class ToyView(View):
    leaves: tuple[Leaf, ...] = ()
    keeps: tuple[str, ...] = ()
    label: str = "toy"


@dataclass(frozen=True)
class Steps(Update):
    stages_: tuple[Stage, ...] = field(default=())
    label: str = "toy"

    def stages(self, context: RoundContext) -> tuple[Stage, ...]:
        return self.stages_


def steps(*moves: tuple[str, ...]) -> Steps:
    """One stage per move."""
    return Steps(tuple(Stage(1, (Move(leaves, Sgd(0.1)),)) for leaves in moves))


def method(scorer=Dot(4), view=ItemTable(4), update=Joint(("user", "items"))) -> Method:  # noqa: B008
    return Method("toy", "nobody 2000", MethodConfig(), scorer, view, BinaryCrossEntropy(), update, Mean())


def problem(**parts) -> str:
    with pytest.raises(ConfigError) as caught:
        method(**parts)
    return caught.value.message


def test_what_fits_is_accepted() -> None:
    built = method()
    assert [leaf.name for leaf in built.leaves] == ["user", "items"]
    assert set(built.choices) == {"scorer", "view", "loss", "update", "aggregate"}
    method(update=steps(("user",), ("items",)))
    method(view=ItemTable(4, keep=True))


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"scorer": ToyScorer((SHARED,)), "update": steps(("items",))}, "leaf 'items' is declared twice"),
        ({"update": steps(("user", "item", "items"))}, "the update moves 'item', which no part declares"),
        ({"update": steps(("user",))}, "leaf 'items' is uploaded but never trained"),
        (
            {"view": ToyView((SHARED,), ("rows",))},
            "the view keeps 'rows', which is not a shared per-item leaf",
        ),
        (
            {"view": ItemTable(4, home=Home.PERSONAL, keep=True)},
            "the view keeps 'items', which is not a shared per-item leaf",
        ),
        (
            {
                "view": ToyView((Leaf("bias", (1,), Home.SHARED),), ("bias",)),
                "update": steps(("user", "bias")),
            },
            "the view keeps 'bias', which is not a shared per-item leaf",
        ),
    ],
)
def test_every_kind_of_problem(parts, said: str) -> None:
    assert problem(**parts) == f"method 'toy' is inconsistent: {said}"


def test_all_problems_at_once() -> None:
    said = problem(
        scorer=ToyScorer((SHARED, Leaf("user", (4,), Home.PERSONAL), Leaf("user", (4,), Home.PERSONAL))),
        view=ToyView((SHARED, Leaf("bias", (1,), Home.SHARED, upload=True)), ("user", "nothing")),
        update=steps(("items", "usr"), ("itms",)),
    )
    assert said.removeprefix("method 'toy' is inconsistent: ").split("; ") == [
        "leaf 'items' is declared twice",
        "leaf 'user' is declared twice",
        "the update moves 'itms', which no part declares",
        "the update moves 'usr', which no part declares",
        "leaf 'bias' is uploaded but never trained",
        "the view keeps 'user', which is not a shared per-item leaf",
        "the view keeps 'nothing', which is not a shared per-item leaf",
    ]


def test_select() -> None:
    built = build("pfedrec")
    names = {
        (home, per_item): [leaf.name for leaf in built.select(home=home, per_item=per_item)]
        for home in (None, *Home)
        for per_item in (None, True, False)
    }
    assert names[None, None] == ["score.weight", "score.bias", "items"]
    assert names[Home.SHARED, None] == names[None, True] == names[Home.SHARED, True] == ["items"]
    assert names[Home.PERSONAL, None] == names[None, False] == ["score.weight", "score.bias"]
    assert names[Home.SHARED, False] == names[Home.PERSONAL, True] == []


def test_a_loss_that_the_scorer_is_not_made_for() -> None:
    built = method()
    with pytest.raises(
        ConfigError, match="the loss 'sampled softmax, next item' does not train the scorer 'dot"
    ):
        replace(built, loss=SampledSoftmax())
    with pytest.raises(ConfigError, match="the loss 'binary cross-entropy' does not train the scorer 'own"):
        replace(build("fedhist"), loss=BinaryCrossEntropy())


@dataclass(frozen=True)
class SquaredError(Loss):
    """½ Σ weight (score − label)², whose slope is weight · score − positive."""

    label: str = "squared error"

    def value(self, scores: Tensor, batch: Batch) -> Tensor:
        weights, positives = batch
        return (weights * scores**2 / 2 - positives * scores).sum(-1)

    def slope(self, scores: Tensor, batch: Batch) -> Tensor:
        return batch.weights * scores - batch.positives


def test_a_loss_of_ones_own_trains_in_both_engines() -> None:
    positives = Ragged.from_lists([[0, 1], [2, 3, 4], [5]])
    data = ClientData(positives, positives, n_items=9)
    own = replace(build("fedmf", {"embedding_size": 3, "local_epochs": 2}), loss=SquaredError())
    found = []
    for train in (train_one_by_one, BlockTraining(1)):
        cpu = torch.device("cpu")
        simulation = Simulation(own, data, train, seed=0, device=cpu, dtype=torch.float64)
        losses = [simulation.run_round(round_).loss for round_ in range(3)]
        found.append((losses, simulation.scores(np.arange(3))))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-12)
    torch.testing.assert_close(found[0][1], found[1][1], rtol=1e-10, atol=1e-12)
    plain = Simulation(
        build("fedmf", {"embedding_size": 3, "local_epochs": 2}),
        data,
        train_one_by_one,
        seed=0,
        device=torch.device("cpu"),
        dtype=torch.float64,
    )
    assert plain.run_round(0).loss != pytest.approx(found[0][0][0])


@pytest.mark.parametrize(("name", "options"), [("colr", {}), ("fedfast", {}), ("fedem", {"form": "code"})])
def test_random_choices_follow_the_seed(name: str, options: dict) -> None:
    context = build(name, options).context
    draws = [context(1, 9, seed).generator(Purpose.CLIENTS, 1).random() for seed in (0, 0, 1)]
    assert draws[0] == draws[1] != draws[2]


def test_context_resolves_every_schedule() -> None:
    built = build("pfedrec", {"learning_rate": "0.8*0.5^round", "local_epochs": 3, "reg": 0.25})
    context = built.context(2, n_items=9)
    assert (context.round, context.n_items, context.local_epochs) == (2, 9, 3)
    assert context.hyper["learning_rate"] == 0.2
    assert (context.hyper["reg"], context.hyper["item_rate"]) == (0.25, 80.0)
    assert (context.batch_size, context.negatives) == (256, 4)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("rate", [0.03, "0.1*0.97^round"])
def test_config_goes_through_json(name: str, rate) -> None:
    built = build(name, {"learning_rate": rate, "embedding_size": 6, "reg": 0.1, "clients_per_round": 0.3})
    text = built.config.model_dump_json()
    assert METHODS[name].config.model_validate_json(text) == built.config
    assert build(name, json.loads(text)) == built


@pytest.mark.parametrize("name", METHODS)
def test_options_may_come_as_text(name: str) -> None:
    """As the command line gives them."""
    built = build(name, {"embedding_size": "8", "reg": "1e-3", "learning_rate": "0.5*0.9^round"})
    assert (built.config.embedding_size, built.config.reg) == (8, 1e-3)
    assert built.config.learning_rate.at(1) == pytest.approx(0.45)


@pytest.mark.parametrize("name", METHODS)
def test_every_option_says_what_it_is(name: str) -> None:
    fields = METHODS[name].config.model_fields
    assert [option for option, field_ in fields.items() if not field_.description] == []


def test_a_config_is_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        build("fedmf").config.reg = 1.0


def refused(name: str, options: dict | None = None) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        build(name, options)
    return caught.value


def test_misspelt_method() -> None:
    assert refused("fedfm").message == "unknown method 'fedfm'"
    assert refused("fedfm").hint == "did you mean 'fedmf'?"
    assert refused("zzz").hint == f"known: {', '.join(names())}"


def test_misspelt_options_are_all_named() -> None:
    error = refused("fedmf", {"learning_rat": 1, "epochs": 2, "reg": 0.1})
    assert error.message == "method 'fedmf' has no option 'learning_rat', 'epochs'"
    assert error.hint == "did you mean 'learning_rate'?"


def test_an_option_of_another_method() -> None:
    assert "'item_rate'" in refused("fedem", {"item_rate": 1}).message


@pytest.mark.parametrize("name", ["fedmf", "fedncf"])
def test_a_rate_of_sgd_needs_sgd(name: str) -> None:
    message = refused(name, {"item_rate": 80, "optimizer": "adam"}).message
    assert message.startswith(f"method '{name}': item_rate is a rate of SGD")
    assert "add optimizer=sgd" in message


def test_invalid_values_are_all_named() -> None:
    error = refused("fedmf", {"embedding_size": 0, "reg": -1, "learning_rate": "quick", "optimizer": "lbfgs"})
    assert error.message.startswith("method 'fedmf': ")
    for option in ("embedding_size: ", "reg: ", "learning_rate: ", "optimizer: "):
        assert option in error.message
    assert error.hint == "solera methods fedmf shows its options"


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("embedding_size", 1.5),
        ("local_epochs", 0),
        ("batch_size", 0),
        ("negatives", 0),
        ("clients_per_round", 0),
        ("reg", "much"),
    ],
)
def test_invalid_value(option: str, value) -> None:
    assert f"{option}: " in refused("pfedrec", {option: value}).message


@pytest.mark.parametrize("name", ALIASES)
def test_former_names_of_ablations_are_options_of_their_method(name):
    """Saved runs have the former name, and may have other options of the former ablation."""
    method, options = ALIASES[name]
    former, now = build(name, {"embedding_size": 4}), build(method, {"embedding_size": 4} | options)
    assert (former.name, former.choices) == (name, now.choices)
    assert former.config == now.config
    assert build(name, former.config.model_dump()).config == now.config
    assert name not in names()
    with pytest.raises(ConfigError, match="Solera's own methods"):
        register(name, MethodConfig, lambda config: now)
