"""Solera: personalized federated recommendation.

>>> import solera
>>> data = solera.load("ml-100k")  # doctest: +SKIP
>>> run = solera.train("fedmf", data, rounds=20)  # doctest: +SKIP
>>> run.metrics  # doctest: +SKIP
>>> run.recommend(user="196", k=10)  # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from solera.core.errors import SoleraError

if TYPE_CHECKING:
    __version__: str
    from solera.api import (
        BaselineRun,
        Callback,
        Interactions,
        Progress,
        RoundEntry,
        Run,
        RunResult,
        baseline,
        blend,
        compare,
        datasets,
        estimator,
        evaluate,
        load,
        load_model,
        methods,
        open_run,
        presets,
        register,
        register_dataset,
        register_method,
        register_metric,
        report,
        train,
    )

MODELS = (  # a class for each method and each centralized baseline, see `solera.estimators`
    "CoLR",
    "FedCIA",
    "FedEASE",
    "FedEM",
    "FedFast",
    "FedHist",
    "FedMF",
    "FedNCF",
    "FedRAP",
    "FedRecon",
    "FedSASRec",
    "FedSLIST",
    "GPFedRec",
    "Local",
    "PerFedRec",
    "PFedCLR",
    "PFedGraph",
    "PFedRec",
    "PLGC",
    "CentRAP",
    "EASE",
    "ESASRec",
    "HSTU",
    "IALS",
    "LightGCN",
    "MF",
    "NCF",
    "Popularity",
    "SASRec",
    "SLIST",
)
__all__ = [
    "BaselineRun",
    "Callback",
    "Interactions",
    "Progress",
    "RoundEntry",
    "Run",
    "RunResult",
    "SoleraError",
    "__version__",
    "baseline",
    "blend",
    "compare",
    "datasets",
    "estimator",
    "evaluate",
    "load",
    "load_model",
    "methods",
    "open_run",
    "presets",
    "register",
    "register_dataset",
    "register_method",
    "register_metric",
    "report",
    "train",
]
__all__ += MODELS  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    """Load torch and the rest only when something is asked for: `solera --help` must not wait for them."""
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415

        return version("solera")
    if name not in __all__:
        raise AttributeError(f"module 'solera' has no attribute {name!r}")
    from solera import api  # noqa: PLC0415

    return getattr(api, name)


def __dir__() -> list[str]:
    """All that can be asked for, before it is loaded too."""
    return sorted(__all__)
