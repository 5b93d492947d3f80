"""`--upload` and `--download`: read them, and refuse combinations that do not work, with the reason."""

from __future__ import annotations

from typing import Literal

from solera.coding.downloads import CodedDownload
from solera.coding.tables import Int8Table, ProductQuantised, ResidualQuantised, TableCoding, Whole
from solera.coding.uploads import Int8, LargestRows, LowRank, Projection
from solera.core.choices import Tailoring
from solera.core.closed_form import ClosedForm
from solera.core.download import Download
from solera.core.errors import ConfigError
from solera.core.federated import AnyMethod
from solera.core.method import Method
from solera.core.protection import UploadCoding

_UPLOADS = "use int8, top-k:0.1, low-rank:4 or sketch:0.25"
_DOWNLOADS = "use int8, pq:8, rq:8, delta or slice:0.1, or two of them, such as pq:8+delta or rq:8+own"
_NOT_MASKED = {
    "int8": "masks hide sums of integers of one scale, and int8 has a scale for every row of every client",
    "top-k": "under masks a client sends every row, so that nobody sees which rows it touched",
    "low-rank": "masks hide sums, and a product of factors cannot be computed from sums of the factors",
}


def upload_coding(text: str, seed: int) -> UploadCoding:
    """The coding that `--upload` names."""
    kind, _, amount = text.partition(":")
    match kind:
        case "int8" if not amount and text == kind:
            return Int8()
        case "top-k":
            return LargestRows(_share(amount, text, _UPLOADS, "upload"))
        case "low-rank":
            return LowRank(_whole(amount, text, _UPLOADS, "upload"))
        case "sketch":
            return Projection(_share(amount, text, _UPLOADS, "upload"), seed)
    raise _unknown(text, _UPLOADS, "upload")


def download_coding(text: str, method: Method, seed: int) -> Download:
    """The coding that `--download` names."""
    tables: TableCoding = Whole()
    delta, slice_, own = False, 1.0, False
    given: list[str] = []
    for part in text.split("+"):
        kind, _, amount = part.partition(":")
        match kind:
            case "int8" if part == kind:
                tables = Int8Table()
            case "pq":
                tables = ProductQuantised(_whole(amount, text, _DOWNLOADS, "download"))
            case "rq":
                tables = ResidualQuantised(_whole(amount, text, _DOWNLOADS, "download"))
            case "delta" if part == kind:
                delta = True
            case "own" if part == kind:
                own = True
            case "slice":
                slice_ = _share(amount, text, _DOWNLOADS, "download")
            case _:
                raise _unknown(text, _DOWNLOADS, "download")
        given.append("table" if kind in ("int8", "pq", "rq") else "rows")
    if len(set(given)) < len(given) or text == "own":
        raise _unknown(text, _DOWNLOADS, "download")
    return CodedDownload(method, tables, seed, delta, slice_, own)


def check_upload(
    text: str, method: AnyMethod, *, masked: bool, noise: Literal["central", "local", "distributed"] | None
) -> None:
    """Raise an error if uploads of this method or with this protection cannot be coded like this."""
    upload_coding(text, 0)
    kind = text.partition(":")[0]
    if isinstance(method, ClosedForm):
        raise _refusal(method, "upload", "it sends sums over a history, not changes of trained tables")
    if not any(leaf.sent_as for leaf in method.leaves):
        raise _refusal(method, "upload", "its clients send nothing")
    if isinstance(method.aggregate, Tailoring) and any(
        leaf.feeds == method.aggregate.source for leaf in method.leaves
    ):
        raise _refusal(method, "upload", "its server mixes the clients' tables as they are on the clients")
    if masked and kind in _NOT_MASKED:
        raise ConfigError(
            f"--upload {text} cannot be combined with --secure-aggregation: {_NOT_MASKED[kind]}",
            "use --upload sketch:0.25",
        )
    if noise in ("local", "distributed"):
        raise ConfigError(
            f"--upload {text} cannot be combined with --dp mode={noise}: clients add noise to every number "
            "of the whole tables, and a coding would remove it again",
            "use mode=central, or omit --upload",
        )


def check_download(text: str, method: AnyMethod, *, masked: bool, private: bool) -> None:
    """Raise an error if downloads of this method or with this protection cannot be coded like this."""
    if isinstance(method, ClosedForm):
        raise _refusal(method, "download", "its clients download nothing before they send their sums")
    download_coding(text, method, 0)
    if method.tailored:
        raise _refusal(method, "download", "every client downloads a table of its own")
    if not any(leaf.per_item and leaf.name in method.shared_shapes(1) for leaf in method.leaves):
        raise _refusal(method, "download", "it has no shared item table")
    if (masked or private) and ("slice" in text or "own" in text):
        other = "--secure-aggregation" if masked else "--dp"
        raise ConfigError(
            f"--download {text} cannot be combined with {other}: a client would ask for the rows it needs, "
            f"its own items among them, which {other} is meant to hide",
            "use --download pq:8, which does not depend on the client",
        )


def _refusal(method: AnyMethod, option: str, why: str) -> ConfigError:
    return ConfigError(f"--{option} cannot be used with {method.name!r}: {why}", f"omit --{option}")


def _share(amount: str, text: str, hint: str, option: str) -> float:
    try:
        share = float(amount)
    except ValueError:
        share = 0.0
    if not 0 < share < 1:
        raise ConfigError(f"--{option} {text} needs a share between 0 and 1", hint)
    return share


def _whole(amount: str, text: str, hint: str, option: str) -> int:
    if not amount.isdecimal() or not 1 <= int(amount) <= 1024:
        raise ConfigError(f"--{option} {text} needs a whole number from 1 to 1024", hint)
    return int(amount)


def _unknown(text: str, hint: str, option: str) -> ConfigError:
    return ConfigError(f"{text!r} is not a valid --{option}", hint)
