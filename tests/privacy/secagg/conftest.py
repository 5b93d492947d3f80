from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


@pytest.fixture(scope="session")
def identities() -> list[Ed25519PrivateKey]:
    """Twenty nodes."""
    return [Ed25519PrivateKey.generate() for _ in range(20)]
