"""The device: one request to the helper, then one message that the helper relays. Both have fixed sizes.

    request    β_1 … β_B             blinded elements of what goes tonight and of padding, for the helper
    answer     ε_1 … ε_B, proof      from the helper
    message    B reports, each sealed for the server, for the helper to shuffle

Padding is measurements that nobody else has. To the server it looks like pairs that are below the threshold,
and the helper cannot tell it from other reports.

All random choices but the seals' are made from the ledger's key and the terms. So a device that was killed
sends the same request again, and reports that are the same to the server: they cannot count twice.
"""

from __future__ import annotations

from collections.abc import Iterable

import rbcl
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA512
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from solera.privacy.reports.measurements import MEASUREMENT_BYTES, PADDING, Ledger, Measurement
from solera.privacy.reports.oprf import ELEMENT_BYTES, PROOF_BYTES, ReportsError, blind, finalize, verify
from solera.privacy.reports.report import POINT_BYTES, Terms, report, seal


class Reporter:
    """Takes part for one device. Its owner has agreed to a threshold of at least `least_devices`."""

    def __init__(self, ledger: Ledger, least_devices: int) -> None:
        self.ledger, self._least_devices = ledger, least_devices

    def request(self, terms: Terms, candidates: Iterable[Measurement]) -> bytes:
        """Blinded elements for the helper. The first candidates that have not gone yet are taken."""
        if terms.least_devices < self._least_devices:
            raise ReportsError(
                f"the server would learn what {terms.least_devices} devices have in common; the owner of this"
                f" one has agreed to {self._least_devices} or more"
            )
        self.ledger.take(terms.epoch, candidates, terms.reports)
        return b"".join(blind(each, self._blind(terms, each)) for each in self._inputs(terms))

    def message(self, terms: Terms, answer: bytes, helper: bytes, server: bytes) -> bytes:
        """The sealed reports, given the helper's answer and both public keys. Counts as sent from here on."""
        inputs = self._inputs(terms)
        elements, proof = split(answer[:-PROOF_BYTES], ELEMENT_BYTES), answer[-PROOF_BYTES:]
        blinds = [self._blind(terms, each) for each in inputs]
        blinded = [blind(each, scalar) for each, scalar in zip(inputs, blinds, strict=True)]
        verify(helper, blinded, elements, proof)
        key = X25519PublicKey.from_public_bytes(server)
        sealed = []
        for each, scalar, element in zip(inputs, blinds, elements, strict=True):
            point = self._drawn(terms, b"point" + each, POINT_BYTES)
            sealed.append(seal(terms, report(terms, each, finalize(each, scalar, element), point), key))
        self.ledger.went(terms.epoch)
        return b"".join(sealed)

    def _inputs(self, terms: Terms) -> list[bytes]:
        """What was taken for this epoch, and padding up to the size of the message."""
        taken = [each.encoded() for each in self.ledger.of(terms.epoch)]
        padding = (
            PADDING.to_bytes(1) + self._drawn(terms, b"padding" + place.to_bytes(2), MEASUREMENT_BYTES - 1)
            for place in range(len(taken), terms.reports)
        )
        return [*taken, *padding]

    def _blind(self, terms: Terms, data: bytes) -> bytes:
        drawn = self._drawn(terms, b"blind" + data, 64)
        return bytes(rbcl.crypto_core_ristretto255_scalar_reduce(drawn))

    def _drawn(self, terms: Terms, purpose: bytes, length: int) -> bytes:
        return bytes(HKDF(SHA512(), length, salt=terms.context, info=purpose).derive(self.ledger.key))


def split(data: bytes, size: int) -> list[bytes]:
    """Pieces of one size. Raises an error if that is impossible."""
    if len(data) % size:
        raise ReportsError("a message has not the length that the terms say")
    return [data[begin : begin + size] for begin in range(0, len(data), size)]
