"""Attacks as tests: who attacks, what must hold, what the attack reached before, and what it reaches now."""

from __future__ import annotations

from typing import Literal

import pytest

Adversary = Literal[
    "lying server",
    "server with nodes of its own",
    "lying node",
    "server of reports",
    "server with devices of its own",
    "helper",
    "crash",
    "stranger",
    "local program",
    "file",
]


def attack(adversary: Adversary, promise: str, *, before: str) -> pytest.MarkDecorator:
    """Mark a test as an attack.

    `promise` is one sentence that the test shows to hold. `before` is what the attack reached in version 0.1;
    it is "refused" where that version held already. What it reaches now is what the test passes to `reached`.
    """
    return pytest.mark.attack(adversary=adversary, promise=promise, before=before)
