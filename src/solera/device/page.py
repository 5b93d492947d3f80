"""A page that recommends from a bundle: one HTML file that holds the model and connects to nothing.

index.html             the app, the bundle in base64, and a policy that lets the page connect to nothing
contribute.html        for a publisher who collects threshold reports: it connects to the helper alone, and
                       sends nothing before the person turns that on
sw.js, app.webmanifest, icon.svg
                       for a page on a web server: they install it, so that it opens without a network

The app is written in TypeScript (folder `web` of the repository) and built into `page_assets`.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from importlib.resources import files
from pathlib import Path

from pydantic import Field

from solera.core.errors import BundleError
from solera.core.files import write_atomically
from solera.core.frozen import Frozen
from solera.device.bundle import Bundle, fingerprint
from solera.device.models.opened import open_model
from solera.device.models.served import FROM_HISTORY
from solera.device.reports import asks_for_order

CONTRIBUTE = "contribute.html"
MAX_BYTES = 200 << 20  # of a bundle: browsers hold a page's text several times
PAGE, BESIDE = "index.html", ("sw.js", "app.webmanifest", "icon.svg")
_LINK = '<footer><a href="{}">What this browser sends to {}</a></footer>'
_ASSETS = files("solera.device") / "page_assets"


class Collected(Frozen):
    """Threshold reports that a publisher collects: what every person is asked to agree to."""

    helper: str = Field(pattern=r"^(https://[A-Za-z0-9.-]+|http://127\.0\.0\.1)(:\d+)?$")
    server: str = Field(pattern="^[0-9a-f]{64}$", description="public key of the server")
    federation: str = Field(min_length=1)
    least_devices: int = Field(ge=2)
    newest: int = Field(default=20, ge=1)


def write_page(
    bundle: Bundle, folder: Path, title: str = "Solera", collected: Collected | None = None
) -> Path:
    """Write the page of a bundle into a folder, and return its path."""
    _check(bundle)
    model = base64.b64encode(bundle.path.read_bytes()).decode()
    style, script = _asset("app.css"), _asset("app.js")
    page = _filled(
        _asset("page.html"),
        policy=html.escape(policy(script, style)),
        title=html.escape(title),
        style=style,
        script=script,
        beside=_LINK.format(CONTRIBUTE, html.escape(collected.federation)) if collected else "",
        bundle=model,
    )
    version = hashlib.sha256(page.encode()).hexdigest()[:16]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in BESIDE:
            write_atomically(folder / name, _filled(_asset(name), version=version))
        write_atomically(folder / PAGE, page)
        if collected:
            write_atomically(folder / CONTRIBUTE, _contribute(bundle, title, collected))
    except OSError as error:
        message = f"{folder} cannot be written: {error.strerror}"
        raise BundleError(message, "give another folder with -o") from None
    return folder / PAGE


def _contribute(bundle: Bundle, title: str, collected: Collected) -> str:
    style, script = _asset("app.css"), _asset("contribute.js")
    agreed = collected.model_dump() | {
        "leastDevices": collected.least_devices,
        "ordered": asks_for_order(bundle),
    }
    settings = {
        "agreed": agreed,
        # The name that the other page gives its database; a federation's bundle names no data set.
        "store": f"solera {fingerprint(bundle.key)} {bundle.manifest.trained.get('dataset', 'undefined')}",
        "items": [[each.id, each.title] for each in bundle.catalogue()],
    }
    return _filled(
        _asset("contribute.html"),
        policy=html.escape(policy(script, style, collected.helper)),
        title=html.escape(title),
        style=style,
        script=script,
        settings=json.dumps(settings).replace("<", "\\u003c"),
    )


def policy(script: str, style: str, connect: str = "'none'") -> str:
    """The page's Content Security Policy: only this script and this style, and no other connections."""
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src '{_digest(script)}'",
            f"style-src '{_digest(style)}'",
            f"connect-src {connect}",
            "img-src data:",
            "manifest-src 'self'",
            "worker-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )


def _check(bundle: Bundle) -> None:
    manifest = bundle.manifest
    for model in manifest.models:
        if model.plugins or model.method not in FROM_HISTORY:
            raise BundleError(
                f"{model.full_method!r} needs personal parameters, which a page does not have",
                f"use a bundle of {', '.join(FROM_HISTORY)}",
            )
        if model.options.get("decay_days"):
            raise BundleError(
                f"{model.full_method!r} was trained with decay_days, but a page does not use dates",
                "train it without decay_days: then items fade by their order",
            )
    if not manifest.trained:
        raise BundleError(f"{bundle.path} has not been trained yet", "train it, then export its run")
    size = bundle.path.stat().st_size
    if size > MAX_BYTES:
        raise BundleError(
            f"{bundle.path} has {size:,} bytes; a page holds at most {MAX_BYTES:,}",
            "export the run without --whole, or train it with -o neighbours=200",
        )
    bundle.catalogue()
    open_model(bundle)


def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


def _filled(template: str, **values: str) -> str:
    """Replace every {{name}}; what is inserted is not looked at again."""
    parts = template.split("{{")
    filled = [parts[0]]
    for part in parts[1:]:
        name, end, rest = part.partition("}}")
        filled += [values[name], rest] if end and name in values else ["{{", part]
    return "".join(filled)


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
