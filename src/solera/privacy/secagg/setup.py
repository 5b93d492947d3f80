"""The setup that all parties of a round agree on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from functools import lru_cache
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from solera.privacy.secagg.encoding import MAX_CLIENTS, Encoding
from solera.privacy.secagg.errors import SecAggError
from solera.privacy.secagg.identity import MAX_KEY_BYTES, read_identity

MAX_BYTES = 1 << 21  # of a setup on the wire


class Setup(BaseModel):
    """Session, round, members, threshold and encoding. Its digest is in all that is sent, signed or derived.

    `roster` holds the members' public keys (`public_identity`); a client's number is its place there. Against
    a server that invents members no protocol helps: a node must know the keys by another way than from it.
    `threshold` members must stay to the end. It is more than half, or a server could lead two groups to two
    results, and more than any group of members that work together: a node that is sent a setup looks whether
    roster and threshold are large enough for its taste.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", ser_json_bytes="base64", val_json_bytes="base64", allow_inf_nan=False
    )

    session: bytes = Field(min_length=16, max_length=32, description="random, made once by the server")
    round: int = Field(ge=0, lt=1 << 32)
    threshold: int
    encoding: Encoding
    roster: tuple[Annotated[bytes, Field(max_length=MAX_KEY_BYTES)], ...] = Field(max_length=MAX_CLIENTS)

    @field_validator("roster")
    @classmethod
    def _known_kinds(cls, roster: tuple[bytes, ...]) -> tuple[bytes, ...]:
        if len(set(roster)) != len(roster):
            raise ValueError("a key is listed twice")
        for key in roster:
            try:
                read_identity(key)
            except SecAggError as error:
                raise ValueError(error.message) from None
        return roster

    @model_validator(mode="after")
    def _fits(self) -> Self:
        n = len(self.roster)
        if not n // 2 < self.threshold <= n or self.threshold < 2:
            raise ValueError(f"the threshold must be more than half of {n} members, and at least 2")
        if self.encoding.clients < n:
            raise ValueError(f"the encoding is for {self.encoding.clients} clients, the roster has {n}")
        return self

    @property
    def context(self) -> bytes:
        """SHA-256 digest of the setup."""
        return _digest(self)

    def purpose(self, what: str, *numbers: int) -> bytes:
        """What a key is for or a signature says, here and nowhere else."""
        return b"\0".join(
            [b"solera secagg 1", what.encode(), self.context + b"".join(n.to_bytes(2) for n in numbers)]
        )

    def to_bytes(self) -> bytes:
        """For the wire, as JSON."""
        return self.model_dump_json().encode()

    @classmethod
    def from_bytes(cls, data: bytes, *, trusted: Collection[bytes] | None = None) -> Self:
        """From the wire; of `trusted` keys alone, if given."""
        if len(data) > MAX_BYTES:
            raise SecAggError("a setup is too long")
        try:
            setup = cls.model_validate_json(data)
        except ValidationError as error:
            wrong = error.errors()[0]
            where = ".".join(map(str, wrong["loc"]))
            raise SecAggError(f"not a valid setup: {where}: {wrong['msg']}") from None
        if trusted is not None and not set(setup.roster) <= set(trusted):
            raise SecAggError("the roster has a member that is not trusted")
        return setup


@lru_cache(maxsize=16)
def _digest(setup: Setup) -> bytes:
    text = json.dumps(setup.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(b"solera secagg 1 setup\0" + text.encode()).digest()
