"""One report: a measurement x that can be read only with those of T devices in all.

The construction is STAR (Davidson et al., CCS 2022). All devices that report x in an epoch derive the same
bytes from it, by a function F whose key the helper has, and is without after the epoch:

    output       F(k, x)                                              RFC 9497
    s            HKDF-SHA512(output, salt = context)                  RFC 5869, 32 bytes
    tag, key, a_1 … a_{T−1} = HKDF-SHA512(s)
    polynomial   P(z) = s + a_1 z + … + a_{T−1} z^{T−1}               Shamir, over the field of 2^256 + 297
    report       tag, z, P(z), AES-256-GCM(key, x)

with a point z of the device's own. T reports of one x have the same tag, give s, and with it the key. With s
known everything of an honest report is known, so that each is checked byte by byte. Fewer reports tell that
so many devices have the same unknown x, and nothing of x to whoever cannot evaluate F on it.

A report is sealed for the server (HPKE, RFC 9180, X25519, AES-128-GCM), so that the helper, who relays it,
cannot tell which reports are of the same x. The context (federation, epoch, T, reports a device) is in all of
these: what was made for one epoch is nothing in another.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA512
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from solera.privacy.identity import SecAggError
from solera.privacy.reports.measurements import MEASUREMENT_BYTES, Measurement
from solera.privacy.reports.oprf import ReportsError
from solera.privacy.secagg.shamir import PRIME, SHARE_BYTES, combine, number, share, value, weights

TAG_BYTES = POINT_BYTES = 16
CIPHERTEXT_BYTES = MEASUREMENT_BYTES + 16
REPORT_BYTES = TAG_BYTES + POINT_BYTES + SHARE_BYTES + CIPHERTEXT_BYTES
SEALED_BYTES = REPORT_BYTES + 32 + 16  # an HPKE key and an AEAD tag
MOST_DEVICES, MOST_REPORTS = 300, 4096  # for T: HKDF-SHA512 ends at 255 blocks; for reports: a message's size
_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM)
_TRIES = 200


@dataclass(frozen=True)
class Terms:
    """What devices, helper and server agree on for an epoch."""

    federation: str
    epoch: int
    least_devices: int  # T
    reports: int  # of every device, padding among them

    def __post_init__(self) -> None:
        """Raise an error if there is no protection in these terms."""
        if not 2 <= self.least_devices <= MOST_DEVICES:
            raise ReportsError(f"a threshold is of 2 to {MOST_DEVICES} devices, not {self.least_devices}")
        if not 1 <= self.reports <= MOST_REPORTS:
            raise ReportsError(f"a device sends 1 to {MOST_REPORTS} reports, not {self.reports}")

    @cached_property
    def context(self) -> bytes:
        """Bytes that no other terms have."""
        numbers = self.epoch.to_bytes(8) + self.least_devices.to_bytes(2) + self.reports.to_bytes(2)
        return b"solera reports 1\0" + numbers + self.federation.encode()


class Derived(NamedTuple):
    """What all reports of one measurement have in common."""

    tag: bytes
    key: bytes
    polynomial: tuple[int, ...]


class Report(NamedTuple):
    """What the server finds in a sealed report."""

    tag: bytes
    point: bytes
    share: bytes
    ciphertext: bytes

    @classmethod
    def decoded(cls, data: bytes) -> Report:
        """The parts of a report that was unsealed, and so has the right length."""
        ends = (0, TAG_BYTES, TAG_BYTES + POINT_BYTES, REPORT_BYTES - CIPHERTEXT_BYTES, REPORT_BYTES)
        return cls(*(data[begin:end] for begin, end in pairwise(ends)))


class Opened(NamedTuple):
    """A measurement that at least T devices have reported."""

    measurement: Measurement
    devices: int
    refused: int  # reports under its tag that were not as they must be


def secret_of(terms: Terms, output: bytes) -> bytes:
    """s, from the output of F."""
    return bytes(HKDF(SHA512(), length=32, salt=terms.context, info=b"secret").derive(output))


def derived(terms: Terms, secret: bytes) -> Derived:
    """Tag, key and polynomial of s. A coefficient is of 48 bytes: the modulus leaves a bias below 2^-127."""
    length = 48 * terms.least_devices
    stream = HKDF(SHA512(), length=length, salt=terms.context, info=b"report").derive(secret)
    coefficients = (int.from_bytes(stream[begin : begin + 48]) % PRIME for begin in range(48, length, 48))
    return Derived(stream[:16], stream[16:48], (int.from_bytes(secret), *coefficients))


def report(terms: Terms, measurement: bytes, output: bytes, point: bytes) -> bytes:
    """A device's report of an encoded measurement, of which it has the output of F."""
    common = derived(terms, secret_of(terms, output))
    return common.tag + point + _share(common, point) + _ciphertext(common, measurement)


def seal(terms: Terms, plain: bytes, server: X25519PublicKey) -> bytes:
    """A report for the server's eyes alone."""
    return bytes(_SUITE.encrypt(plain, server, info=terms.context))


def unseal(terms: Terms, sealed: bytes, server: X25519PrivateKey) -> Report:
    """A report, if it was sealed for this server and these terms."""
    try:
        plain = bytes(_SUITE.decrypt(sealed, server, info=terms.context))
    except (InvalidTag, ValueError):
        raise ReportsError("a report was sealed for another server or epoch, or changed in transit") from None
    if len(plain) != REPORT_BYTES:
        raise ReportsError("a report has not the length of all others")
    return Report.decoded(plain)


def opened(terms: Terms, reports: Iterable[Report]) -> Opened | None:
    """What reports with the same tag are of; None if fewer than T devices have sent one as it must be.

    Points stand for devices. A point that comes twice counts once: the first report of it.
    """
    by_point: dict[bytes, Report] = {}
    for each in reports:
        by_point.setdefault(each.point, each)
    points = list(by_point.values())
    common = _common(terms, points)
    if common is None:
        return None
    found: Counter[bytes] = Counter()
    for each in points:
        plain = _plain(common, each.ciphertext)
        if plain is not None and each.share == _share(common, each.point):
            found[plain] += 1
    ((measurement, devices),) = found.most_common(1) or ((b"", 0),)
    if devices < terms.least_devices:
        return None
    try:
        return Opened(Measurement.decoded(measurement), devices, len(points) - devices)
    except ValueError:  # T devices of one mind made up something else
        return None


def _common(terms: Terms, points: Sequence[Report]) -> Derived | None:
    """What T of the reports give, if it has their tag.

    Anyone who knows x can send a false share under its tag. Then other T reports are tried, drawn at random:
    with b false ones of g that find a true set after C(g, T) / C(g − b, T) tries.
    """
    draw = random.Random(points[0].tag if points else b"")
    chosen = points[: terms.least_devices]
    for _ in range(_TRIES if len(points) > terms.least_devices else 1):
        if len(chosen) < terms.least_devices:
            return None
        try:
            shares = {int.from_bytes(each.point): each.share for each in chosen}
            for each in shares.values():
                number(each)
            found = derived(terms, combine(weights(list(shares)), shares))
        except SecAggError:
            found = None
        if found and found.tag == chosen[0].tag:
            return found
        chosen = draw.sample(points, terms.least_devices)
    return None


def _share(common: Derived, point: bytes) -> bytes:
    return share(value(common.polynomial, int.from_bytes(point)))


def _ciphertext(common: Derived, measurement: bytes) -> bytes:
    """One key has one measurement, and so one nonce."""
    return bytes(AESGCM(common.key).encrypt(bytes(12), measurement, None))


def _plain(common: Derived, ciphertext: bytes) -> bytes | None:
    try:
        return bytes(AESGCM(common.key).decrypt(bytes(12), ciphertext, None))
    except InvalidTag:
        return None
