"""The federated baselines that the papers compare with."""

from __future__ import annotations

from typing import ClassVar

import pytest

from solera.engine.reference import train_one_by_one
from solera.testing import MethodConformance
from solera.testing.toy import run, state


class Colr(MethodConformance):
    name = "colr"

    def test_training_moves_everything_that_is_declared_to_move(self) -> None:
        """A is zero again after every round, and in the items."""
        start, end = state(run(self.method(), train_one_by_one, rounds=0)), self.expected()
        assert (start["personal user"] != end["personal user"]).any()
        assert (start["shared items"] != end["shared items"]).any()
        assert not end["shared factor"].any()


class TestColr(Colr):
    options: ClassVar = {"rank": 2}


@pytest.mark.slow
class TestColrSmallBatches(Colr):
    options: ClassVar = {"rank": 3, "reg": 0.01, "batch_size": 12}


class TestFedCIA(MethodConformance):
    name = "fedcia"
    options: ClassVar = {"sketch": 12, "align_steps": 5}


@pytest.mark.slow
class TestFedCIAWholeSimilarities(MethodConformance):
    name = "fedcia"
    options: ClassVar = {"sketch": 120, "align_steps": 20, "reg": 0.01, "batch_size": 12}


class TestFedFast(MethodConformance):
    name = "fedfast"


class TestFedFastAsPublished(MethodConformance):
    name = "fedfast"
    options: ClassVar = {"users": "sent", "clusters": 3}


@pytest.mark.slow
class TestFedFastManyClusters(MethodConformance):
    name = "fedfast"
    options: ClassVar = {"clusters": 12, "batch_size": 12}


class TestFedRecon(MethodConformance):
    name = "fedrecon"
    options: ClassVar = {"rebuild_epochs": 3}


@pytest.mark.slow
class TestFedReconSmallBatches(MethodConformance):
    name = "fedrecon"
    options: ClassVar = {"rebuild_epochs": 1, "reg": 0.01, "batch_size": 12}


# Rates at which a few steps on the toy data neither stand still nor run away.
_GPFEDREC = {"learning_rate": "0.05*0.9^round", "item_rate": 1.0, "hidden": (6, 5, 3)}


class TestGPFedRec(MethodConformance):
    name = "gpfedrec"
    options: ClassVar = _GPFEDREC


@pytest.mark.slow
class TestGPFedRecCode(MethodConformance):
    name = "gpfedrec"
    options: ClassVar = {**_GPFEDREC, "neighbours": "code", "guidance": 10.0, "batch_size": 12}


@pytest.mark.slow
class TestGPFedRecLinear(MethodConformance):
    name = "gpfedrec"
    options: ClassVar = {**_GPFEDREC, "scorer": "linear", "reg": 0.001, "threshold": 0.9}


class TestPerFedRec(MethodConformance):
    whole = True
    name = "perfedrec"


@pytest.mark.slow
class TestPerFedRecWithoutOwn(MethodConformance):
    name = "perfedrec"
    options: ClassVar = {"own": 0.0, "cluster": 3.0, "clusters": 3, "batch_size": 12, "layers": 2}


class TestPFedGraph(MethodConformance):
    name = "pfedgraph"
    options: ClassVar = {"attraction": 0.5}


@pytest.mark.slow
class TestPFedGraphRefreshingSome(MethodConformance):
    name = "pfedgraph"
    options: ClassVar = {"attraction": 0.0, "refreshed": 0.3}


@pytest.mark.slow
class TestPFedGraphSmallBatches(MethodConformance):
    name = "pfedgraph"
    options: ClassVar = {"evenness": 0.1, "reg": 0.01, "batch_size": 12}
