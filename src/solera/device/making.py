"""Make a bundle of a published data set: train, measure, sign, and write a card that says what it is."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from solera import __version__
from solera.core.errors import BundleError
from solera.core.files import write_atomically
from solera.data.datasets import Subset, info, load, names, stats, subset_of
from solera.data.interactions import Interactions
from solera.device.bundle import ID_KINDS, Bundle, Item, fingerprint
from solera.device.keys import read_secret
from solera.device.models.served import FROM_HISTORY, tests_of
from solera.device.publish import catalogue_of, export
from solera.runs.presets import run_settings
from solera.runs.training import Callback, train

METHOD = "fedease"  # reads no order: dates of an export may be those of a tidy evening
ITEMS = 20_000  # of a catalogue, the most frequent ones
_DENSE = 8_000  # items, up to which all weights are solved for
_NEIGHBOURS = 200  # weights of an item above that
_KNOWN = {"test": "the item before it is known", "test_train": "the item before it is not known"}


def make(
    source: str,
    output: Path,
    key: Path,
    *,
    method: str = METHOD,
    options: Mapping[str, str] | None = None,
    items: int = ITEMS,
    data_dir: Path | None = None,
    callbacks: Sequence[Callback] = (),
) -> tuple[Bundle, Path]:
    """Write a bundle and its card, which lies beside it."""
    read_secret(key)
    if not output.parent.is_dir():
        raise BundleError(f"{output.parent} is not a folder", "give another -o")
    if method not in FROM_HISTORY:
        raise BundleError(f"{method!r} needs a federation to train in", f"give {', '.join(FROM_HISTORY)}")
    data = load(source, data_dir=data_dir)
    if data.n_items > items:
        data = replace(Subset("items", 1, items).take(data), name=data.name).min_interactions(1)
    given = dict(options or {})
    if data.n_items > _DENSE and method in ("fedease", "fedslist"):
        given.setdefault("neighbours", str(_NEIGHBOURS))
    config = run_settings(method, source, options=given)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "run"
        train(config, data, out=folder, callbacks=callbacks)
        catalogue = catalogue_of(data, source, data_dir)
        bundle = export(folder, output, key, data=data, items=catalogue)
    card = output.with_suffix(".md")
    write_atomically(card, card_of(bundle, source, data, catalogue))
    return bundle, card


def card_of(bundle: Bundle, source: str, data: Interactions, items: Sequence[Item]) -> str:
    """What a publisher should say of a bundle, in Markdown."""
    manifest, found = bundle.manifest, stats(data)
    known = info(subset_of(source)[0]) if subset_of(source)[0] in names() else None
    period = f", {found['first_time'][:10]} to {found['last_time'][:10]}" if found["first_time"] else ""
    shares = {kind: sum(kind in item.ids for item in items) / len(items) for kind in ID_KINDS}
    ids = ", ".join(f"{kind} of {share:.1%}" for kind, share in shares.items() if share)
    licence = known.licence if known else None
    rows = {
        "Data": f"{known.about} ({known.page})" if known else f"{Path(source).name}, a file of its own",
        "Used of it": f"{found['users']:,} users, {found['items']:,} items, {found['rows']:,} rows{period}",
        "Terms of the data": f"{licence.terms} ({licence.page})" if licence else "not known",
        "Method": f"{manifest.full_method}. {_order(manifest.method, manifest.options)}",
        "Made by": f"Solera {__version__}",
        "Ids of items": ids or "none: items are found by title and year",
        "Size": f"{bundle.path.stat().st_size:,} bytes",
        "SHA-256": hashlib.sha256(bundle.path.read_bytes()).hexdigest(),
        "Signed by": fingerprint(bundle.key),
        **{
            f"Figures, {name}": f"HR@10 {test['hr@10']:.4f}, NDCG@10 {test['ndcg@10']:.4f}, where every"
            f" user's last item is ranked among all {manifest.items:,} ({_KNOWN[name]})"
            for name, test in tests_of(manifest).items()
        },
        "Differential privacy": "none (ε = ∞): the weights tell what is in the published data",
    }
    table = "\n".join(f"| {name} | {text} |" for name, text in rows.items())
    command = f"solera device init me --bundle {bundle.path.name} --key PUBLISHER.pub"
    return (
        f"# {bundle.path.name}\n\nA model that recommends from a history, on the device that has it:\n\n"
        f"```console\n{command}\n```\n\nRead the terms of the data before you pass this bundle on.\n\n"
        f"| | |\n|---|---|\n{table}\n"
    )


def _order(method: str, options: Mapping[str, Any]) -> str:
    reads = method != "fedease" or options.get("recency", 1.0) < 1
    return (
        "The order of a history counts: newer items count more"
        if reads and method in FROM_HISTORY
        else "The order of a history does not count"
    )
