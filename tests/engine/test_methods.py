from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
from torch import Tensor

from solera.core.context import RoundContext
from solera.core.leaf import Home, Leaf, Params
from solera.core.method import Method
from solera.core.parts import Adam, Move, Scorer, Sgd, Stage, Update, View
from solera.testing import MethodConformance


# Batches of 12 are much smaller than the rows a client touches, batches of 24 are not: an engine may take
# them by different ways.
class TestFedMFAdam(MethodConformance):
    whole = True
    name = "fedmf"
    options: ClassVar = {"optimizer": "adam"}


@pytest.mark.slow
class TestFedMFAdamReg(MethodConformance):
    name = "fedmf"
    options: ClassVar = {"optimizer": "adam", "reg": 0.01, "batch_size": 12}


class TestFedMFSgd(MethodConformance):
    name = "fedmf"
    options: ClassVar = {"optimizer": "sgd", "learning_rate": 1.0}


@pytest.mark.slow
class TestFedMFSgdReg(MethodConformance):
    name = "fedmf"
    options: ClassVar = {"optimizer": "sgd", "learning_rate": 1.0, "reg": 0.01, "batch_size": 12}


class TestPFedRec(MethodConformance):
    name = "pfedrec"


class TestPFedRecReg(MethodConformance):
    name = "pfedrec"
    options: ClassVar = {"item_rate": 1.0, "reg": 0.001, "batch_size": 12}


class TestFedNCF(MethodConformance):
    name = "fedncf"
    options: ClassVar = {"hidden": (16, 8)}


@pytest.mark.slow
class TestFedNCFSmallBatches(MethodConformance):
    name = "fedncf"
    options: ClassVar = {"hidden": (16, 8), "batch_size": 12, "reg": 0.01}


class TestFedNCFPersonalPerceptron(MethodConformance):
    name = "fedncf"
    options: ClassVar = {
        "hidden": (16, 8),
        "optimizer": "adam",
        "perceptron": "personal",
        "perceptron_reg": 0.1,
    }


# Rates at which a few steps on the toy data neither stand still nor run away.
_ONE_TABLE = {
    "learning_rate": 0.05,
    "item_learning_rate": "5*0.9^round",
    "local_epochs": 3,
}
_FEDRAP = {**_ONE_TABLE, "independence": 0.01}


class TestFedRAP(MethodConformance):
    whole = True
    name = "fedrap"
    options: ClassVar = _FEDRAP


class TestFedRAPSmallBatches(MethodConformance):
    name = "fedrap"
    options: ClassVar = {**_FEDRAP, "batch_size": 12, "norm": "l2", "reg": 0.001, "curriculum": "sin"}


@pytest.mark.slow
class TestFedRAPNo(MethodConformance):
    name = "fedrap-no"
    options: ClassVar = {**_FEDRAP, "curriculum": "fixed"}


@pytest.mark.slow
class TestFedRAPL2(MethodConformance):
    name = "fedrap-l2"
    options: ClassVar = _FEDRAP


class TestFedRAPSoft(MethodConformance):
    name = "fedrap"
    options: ClassVar = {**_FEDRAP, "norm": "soft", "sparsity": 0.05, "curriculum": "fixed"}


@pytest.mark.slow
class TestFedRAPSoftSmallBatches(MethodConformance):
    name = "fedrap"
    options: ClassVar = {**_FEDRAP, "norm": "soft", "sparsity": 0.05, "batch_size": 12}


class TestFedRAPEarlyStop(MethodConformance):
    """A threshold at which, of eight epochs, clients stop after two and after all of them."""

    name = "fedrap"
    options: ClassVar = {**_FEDRAP, "early_stop": 0.02, "local_epochs": 8, "step_decay": 0.8}


@pytest.mark.slow
class TestFedRAPEarlyStopSmallBatches(MethodConformance):
    name = "fedrap"
    options: ClassVar = {**_FEDRAP, "early_stop": 0.02, "local_epochs": 8, "batch_size": 12}


@pytest.mark.slow
class TestFedRAPC(MethodConformance):
    name = "fedrap-c"
    options: ClassVar = _ONE_TABLE


@pytest.mark.slow
class TestFedRAPD(MethodConformance):
    name = "fedrap-d"
    options: ClassVar = _ONE_TABLE


class TestPFedCLR(MethodConformance):
    name = "pfedclr"
    options: ClassVar = {"local_epochs": 2, "clients_per_round": 1.0}


@pytest.mark.slow
class TestPFedCLRSmallBatches(MethodConformance):
    name = "pfedclr"
    options: ClassVar = {
        "local_epochs": 1,
        "rank": 3,
        "reg": 0.01,
        "batch_size": 12,
        "clients_per_round": 1.0,
    }


@pytest.mark.slow
class TestPFedCLRCF(MethodConformance):
    name = "pfedclr-cf"
    options: ClassVar = {"local_epochs": 2, "clients_per_round": 1.0}


@pytest.mark.slow
class TestPFedCLRAF(MethodConformance):
    name = "pfedclr-af"
    options: ClassVar = {"local_epochs": 2, "clients_per_round": 1.0}


class TestFedEM(MethodConformance):
    whole = True
    name = "fedem"
    options: ClassVar = {"adapter": (4,), "adapter_learning_rate": 0.05}


@pytest.mark.slow
class TestFedEMSmallBatches(MethodConformance):
    name = "fedem"
    options: ClassVar = {"adapter": (4, 3), "adapter_learning_rate": 0.05, "batch_size": 12}


class TestFedEMCode(MethodConformance):
    name = "fedem"
    options: ClassVar = {"adapter": (4,), "adapter_learning_rate": 0.05, "form": "code", "server": "code"}


@pytest.mark.slow
class TestFedEMCodeSmallBatches(MethodConformance):
    name = "fedem"
    options: ClassVar = {"adapter": (4,), "adapter_learning_rate": 0.05, "form": "code", "batch_size": 12}


@pytest.mark.slow
class TestFedEMDM(MethodConformance):
    name = "fedem-dm"


@pytest.mark.slow
class TestFedEMSM(MethodConformance):
    name = "fedem-sm"


class TestFedEMSR(MethodConformance):
    name = "fedem-sr"


# Rates at which a few steps on the toy data move the client's table enough to be seen in the traces.
_MIXING = {"item_learning_rate": "5*0.9^round", "local_epochs": 3}
_PLGC = {**_MIXING, "redundancy": 0.5}


class TestPLGC(MethodConformance):
    name = "plgc"
    options: ClassVar = _PLGC


@pytest.mark.slow
class TestPLGCSmallBatches(MethodConformance):
    name = "plgc"
    options: ClassVar = {**_PLGC, "batch_size": 12, "reg": 0.001}


@pytest.mark.slow
class TestPLGCWithAlignmentAndUniformity(MethodConformance):
    name = "plgc"
    options: ClassVar = {**_PLGC, "regularizer": "au"}


class TestPLGCWithContrast(MethodConformance):
    name = "plgc"
    options: ClassVar = {**_PLGC, "regularizer": "duorec", "batch_size": 12}


@pytest.mark.slow
class TestPLGCWithDecorrelation(MethodConformance):
    name = "plgc"
    options: ClassVar = {**_PLGC, "regularizer": "feddecorr"}


@pytest.mark.slow
class TestPLGCDecorrelationAlone(MethodConformance):
    name = "plgc-err"
    options: ClassVar = {**_PLGC, "regularizer": "feddecorr"}


@pytest.mark.slow
class TestPLGCMixingAlone(MethodConformance):
    name = "plgc-dlgm"
    options: ClassVar = _MIXING


@pytest.mark.slow
class TestPLGCRedundancyAlone(MethodConformance):
    name = "plgc-err"
    options: ClassVar = _PLGC


class TestLocal(MethodConformance):
    name = "local"


@dataclass(frozen=True)
class SharedScale(Scorer):
    """⟨w, item⟩ · scale + b, the scale being one shared vector for everybody."""

    label: str = "toy"
    leaves: tuple[Leaf, ...] = (
        Leaf("weight", (4,), Home.PERSONAL),
        Leaf("bias", (1,), Home.PERSONAL),
        Leaf("scale", (4,), Home.SHARED, upload=True),
    )

    def score(self, params: Params, items: Tensor) -> Tensor:
        vector = (params["weight"] * params["scale"]).unsqueeze(-1)
        return (items @ vector).squeeze(-1) + params["bias"]


@dataclass(frozen=True)
class TwoTables(View):
    """A shared table plus a personal one."""

    label: str = "toy"
    keeps: tuple[str, ...] = ()
    leaves: tuple[Leaf, ...] = (
        Leaf("items", (4,), Home.SHARED, per_item=True, upload=True),
        Leaf("own", (4,), Home.PERSONAL, per_item=True),
    )

    def see(self, params: Params) -> Tensor:
        return params["items"] + params["own"]


@dataclass(frozen=True)
class Winding(Update):
    """Items before the scorer, tables apart, a stage of each optimiser, a leaf that moves twice."""

    label: str = "toy"

    def stages(self, context: RoundContext) -> tuple[Stage, ...]:
        rate, reg = context.hyper["learning_rate"], context.hyper["reg"]
        first = (Move(("items",), Sgd(rate, reg)), Move(("weight", "scale"), Sgd(rate)))
        second = (
            Move(("own", "bias"), Adam(rate, reg)),
            Move(("items", "weight"), Adam(rate)),
            Move(("own",), Sgd(rate)),
        )
        return Stage(context.local_epochs, first), Stage(1, second)


class TestAllThatAMethodMayDo(MethodConformance):
    """What no published method here uses, but the parts allow."""

    name = "pfedrec"
    options: ClassVar = {"reg": 0.01, "batch_size": 12}

    def method(self, **more) -> Method:
        return replace(super().method(**more), scorer=SharedScale(), view=TwoTables(), update=Winding())
