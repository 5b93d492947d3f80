"""A trained `fedsasrec` as an ONNX file, which other runtimes and languages read without torch or Solera.

    export(solera.load_model("models/current"), "model.onnx")

The graph has the inputs `history` [users, places] and `lengths` [users], and the output `scores` [users,
items]. A history holds numbers of items, oldest first, then any numbers. The metadata `items` is the JSON
list of the items' ids in the order of their numbers, and `max_length` is the largest number of places.
"""

from __future__ import annotations

import json
import logging
import warnings
from pathlib import Path

import torch
from torch import Tensor

from solera.core.errors import ConfigError
from solera.core.files import write_atomically
from solera.core.leaf import ITEMS, Params
from solera.engine import Simulation
from solera.estimators import Model
from solera.math.transformer import Transformer, states
from solera.methods.fedsasrec import TransformerHistory
from solera.runs import Run

_EXAMPLE = 3  # users and places that the graph is traced with


class _Scores(torch.nn.Module):
    """Scores of all items after a history."""

    def __init__(self, network: Transformer, shared: Params) -> None:
        super().__init__()
        self.network = network
        self.names = [leaf.name for leaf in network.leaves()]
        for name in self.names:
            self.register_buffer(f"of_{name}", shared[name].float())

    def forward(self, history: Tensor, lengths: Tensor) -> Tensor:
        params = {name: self.get_buffer(f"of_{name}") for name in self.names}
        found = states(params, self.network, history)
        asked = lengths[:, None, None].expand(-1, 1, found.shape[2])
        return found.gather(1, asked).squeeze(1) @ params[ITEMS].T


def export(model: Model | Run, path: str | Path) -> Path:
    """Write a fitted model or a finished run of `fedsasrec` to an ONNX file, in 32-bit numbers."""
    try:
        import onnxscript  # noqa: F401, PLC0415  (torch needs it)
    except ImportError:
        raise ConfigError("an export needs onnxscript", "pip install 'solera[onnx]'") from None
    simulation = (model.recommender if isinstance(model, Model) else model)._simulation
    if not isinstance(simulation, Simulation) or not isinstance(simulation.method.scorer, TransformerHistory):
        raise ConfigError(
            "only fedsasrec can be written as ONNX", "solera fit TABLE --method fedsasrec makes such a model"
        )
    network = simulation.method.scorer.network
    places = torch.export.Dim("places", max=network.max_length)
    users = torch.export.Dim("users")
    example = torch.zeros(_EXAMPLE, min(_EXAMPLE, network.max_length), dtype=torch.long)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch's own names
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it misses torchvision
        program = torch.onnx.export(
            _Scores(network, simulation.received).eval(),
            (example, torch.ones(_EXAMPLE, dtype=torch.long)),
            input_names=["history", "lengths"],
            output_names=["scores"],
            dynamic_shapes=({0: users, 1: places}, {0: users}),
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    about = {"items": json.dumps(model.data.item_map.ids.tolist()), "max_length": str(network.max_length)}
    program.model.metadata_props.update(about)
    write_atomically(Path(path), program.model_proto.SerializeToString())
    return Path(path)
