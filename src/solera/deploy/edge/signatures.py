"""Whether a node has signed a request, seen from its headers alone, before the body is read.

Flower checks the same, and that the node is the one that the request names, once it has all of the request.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

from flwr.common.constant import SYSTEM_TIME_TOLERANCE, TIMESTAMP_HEADER, TIMESTAMP_TOLERANCE
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER
from flwr.supercore.date import now
from flwr.supercore.primitives.asymmetric import bytes_to_public_key, verify_signature

if TYPE_CHECKING:
    from starlette.types import Scope

IsKnown = Callable[[bytes], bool]  # whether a public key is registered


def key_of(scope: Scope) -> bytes:
    """The public key that a request names; empty if there is none."""
    try:
        return base64.b64decode(_header(scope, FLEET_HTTP_PUBLIC_KEY_HEADER), validate=True)
    except binascii.Error:
        return b""


def is_signed(scope: Scope, is_known: IsKnown) -> bool:
    """Whether a registered node has signed the request a moment ago."""
    key, stamp = key_of(scope), _header(scope, TIMESTAMP_HEADER)
    try:
        signature = base64.b64decode(_header(scope, FLEET_HTTP_SIGNATURE_HEADER), validate=True)
        age = (now() - datetime.fromisoformat(stamp.decode("ascii"))).total_seconds()
        return (
            -SYSTEM_TIME_TOLERANCE < age < TIMESTAMP_TOLERANCE + SYSTEM_TIME_TOLERANCE
            and is_known(key)
            and verify_signature(bytes_to_public_key(key), stamp, signature)
        )
    except (ValueError, TypeError):
        return False


def _header(scope: Scope, name: str) -> bytes:
    found = [value for given, value in scope["headers"] if given == name.lower().encode()]
    return found[0] if len(found) == 1 else b""
