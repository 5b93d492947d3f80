"""From a finished run to a bundle."""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from pathlib import Path

from safetensors.torch import save

from solera import __version__
from solera.core.errors import BundleError, RunError
from solera.data.datasets import load
from solera.data.interactions import Interactions
from solera.device.bundle import CATALOGUE, LIMITS, MANIFEST, SIGNATURE, TENSORS, Bundle, Manifest
from solera.device.catalogue import split_year
from solera.device.keys import read_secret, sign
from solera.device.model import Model, shared_shapes
from solera.methods import find
from solera.runs.folder import RunFolder

_TOLD = ("dataset", "protocol", "leaky", "seed", "users", "selected_round", "test")  # of a run's result


def export(
    run: Path,
    output: Path,
    key: Path,
    *,
    catalogue_version: int = 1,
    data: Interactions | None = None,
    data_dir: Path | None = None,
) -> Bundle:
    """Write what a run's clients share, and its catalogue, as a signed bundle: nothing personal."""
    secret = read_secret(key)
    folder = RunFolder.open(run)
    config, state, result = folder.config, folder.state(), folder.result
    assert result is not None  # state() has made sure
    data = data or load(
        config.dataset,
        data_dir=data_dir,
        min_interactions=config.min_interactions,
        columns=config.columns,
    )
    if data.n_items != result["items"]:
        raise RunError(
            f"the data set {config.dataset!r} has changed since the run in {run}",
            f"it had {result['items']} items",
        )
    wanted = shared_shapes(find(config.method, config.options, config.plugins), data.n_items)
    titles = [data.title(item) for item in range(data.n_items)]
    catalogue = [
        (id_, title, split_year(title)[1])
        for id_, title in zip(data.item_map.ids.tolist(), titles, strict=True)
    ]
    members = {
        CATALOGUE: json.dumps(catalogue, ensure_ascii=False).encode(),
        TENSORS: save({name: state.shared[name].contiguous() for name in wanted}),
    }
    for name, content in members.items():
        if len(content) > LIMITS[name]:
            raise BundleError(f"{name} would have {len(content):,} bytes", "take a method with item vectors")
    manifest = Manifest(
        library=__version__,
        method=config.method,
        plugins=config.plugins,
        options=config.options,
        precision=config.precision,
        catalogue_version=catalogue_version,
        items=data.n_items,
        trained={name: result[name] for name in _TOLD if name in result},
        sha256={name: hashlib.sha256(content).hexdigest() for name, content in members.items()},
    )
    text = manifest.model_dump_json(indent=2).encode()
    partial = output.with_name(f".{output.name}.partial")
    try:
        _write(partial, {MANIFEST: text, SIGNATURE: sign(secret, text), **members})
        Model(Bundle.open(partial))  # what no device would take is not published
        partial.replace(output)
    except OSError as error:
        raise BundleError(f"{output} cannot be written: {error.strerror}", "give another -o") from None
    finally:
        partial.unlink(missing_ok=True)
    return Bundle.open(output)


def _write(path: Path, members: dict[str, bytes]) -> None:
    with path.open("wb") as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            for name, content in members.items():
                archive.writestr(zipfile.ZipInfo(name), content)
        file.flush()
        os.fsync(file.fileno())
