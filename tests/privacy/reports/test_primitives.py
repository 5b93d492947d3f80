"""The RFCs' own vectors, and sums by hand."""

from __future__ import annotations

import hashlib
import hmac
import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from solera.privacy.reports.oprf import (
    ReportsError,
    blind,
    derive_key,
    evaluate,
    finalize,
    public_key,
    random_scalar,
    verify,
)
from solera.privacy.reports.report import Derived, Report, Terms, _share, derived, seal, secret_of
from solera.privacy.secagg.shamir import combine, value, weights

RFC9497 = json.loads((Path(__file__).parent / "rfc9497.json").read_text())
VECTORS = pytest.mark.parametrize("vector", RFC9497["vectors"])


def unhex(text: str) -> list[bytes]:
    return [bytes.fromhex(each) for each in text.split(",")]


def test_the_key_of_rfc_9497():
    """Appendix A.1.2."""
    key = derive_key(bytes.fromhex(RFC9497["seed"]), bytes.fromhex(RFC9497["keyInfo"]))
    assert key.hex() == RFC9497["skSm"]
    assert public_key(key).hex() == RFC9497["pkSm"]


@VECTORS
def test_the_function_of_rfc_9497(vector):
    key, public = bytes.fromhex(RFC9497["skSm"]), bytes.fromhex(RFC9497["pkSm"])
    inputs, blinds = unhex(vector["Input"]), unhex(vector["Blind"])
    blinded = [blind(data, scalar) for data, scalar in zip(inputs, blinds, strict=True)]
    assert blinded == unhex(vector["BlindedElement"])
    evaluated, proof = evaluate(key, blinded, bytes.fromhex(vector["Proof"]["r"]))
    assert evaluated == unhex(vector["EvaluationElement"])
    assert proof.hex() == vector["Proof"]["proof"]
    verify(public, blinded, evaluated, proof)
    outputs = [finalize(*each) for each in zip(inputs, blinds, evaluated, strict=True)]
    assert outputs == unhex(vector["Output"])


@VECTORS
def test_an_element_of_another_key_is_noticed(vector):
    """The control: the same with the right key is accepted."""
    public, blinded = bytes.fromhex(RFC9497["pkSm"]), unhex(vector["BlindedElement"])
    evaluated, proof = evaluate(random_scalar(), blinded)
    with pytest.raises(ReportsError, match="not of the key"):
        verify(public, blinded, evaluated, proof)
    right, proof = evaluate(bytes.fromhex(RFC9497["skSm"]), blinded)
    verify(public, blinded, right, proof)
    with pytest.raises(ReportsError, match="not of the key"):
        verify(public, blinded, [*right[:-1], evaluated[-1]], proof)


@pytest.mark.parametrize("wrong", [bytes(32), b"\xff" * 32, b"", bytes(31)])
def test_what_is_no_element_is_refused(wrong):
    with pytest.raises(ReportsError, match="not of the group"):
        evaluate(random_scalar(), [wrong])


def _hkdf(hash_, salt: bytes, secret: bytes, info: bytes, length: int) -> bytes:
    """RFC 5869."""
    key, made, last, counter = hmac.digest(salt, secret, hash_), b"", b"", 1
    while len(made) < length:
        last = hmac.digest(key, last + info + counter.to_bytes(1), hash_)
        made, counter = made + last, counter + 1
    return made[:length]


def test_hkdf_of_rfc_5869():
    """Test case 1, of the formulas here, by which what the reports derive is checked."""
    found = _hkdf(hashlib.sha256, bytes(range(13)), b"\x0b" * 22, bytes(range(0xF0, 0xFA)), 42)
    assert found.hex().startswith("3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf")
    terms = Terms("films", 7, 5, 20)
    secret = _hkdf(hashlib.sha512, terms.context, b"output", b"secret", 32)
    assert secret_of(terms, b"output") == secret
    stream = _hkdf(hashlib.sha512, terms.context, secret, b"report", 48 + 4 * 48)
    common = derived(terms, secret)
    assert common[:2] == (stream[:16], stream[16:48])
    assert common.polynomial[0] == int.from_bytes(secret)
    assert common.polynomial[1] == int.from_bytes(stream[48:96]) % (2**256 + 297)


def _open_hpke(private: bytes, sealed: bytes, info: bytes, aad: bytes = b"") -> bytes:
    """RFC 9180: DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, AES-128-GCM, base mode, the first message."""
    key = X25519PrivateKey.from_private_bytes(private)
    kem, suite = b"KEM" + (32).to_bytes(2), b"HPKE" + b"\0\x20\0\1\0\1"

    def extract(id_: bytes, salt: bytes, label: bytes, data: bytes) -> bytes:
        return hmac.digest(salt or bytes(32), b"HPKE-v1" + id_ + label + data, hashlib.sha256)

    def expand(id_: bytes, secret: bytes, label: bytes, data: bytes, length: int) -> bytes:
        labeled = length.to_bytes(2) + b"HPKE-v1" + id_ + label + data
        return hmac.digest(secret, labeled + b"\1", hashlib.sha256)[:length]

    shared = key.exchange(X25519PublicKey.from_public_bytes(sealed[:32]))
    both = sealed[:32] + key.public_key().public_bytes_raw()
    secret = expand(kem, extract(kem, b"", b"eae_prk", shared), b"shared_secret", both, 32)
    context = b"\0" + extract(suite, b"", b"psk_id_hash", b"") + extract(suite, b"", b"info_hash", info)
    secret = extract(suite, secret, b"secret", b"")
    nonce = expand(suite, secret, b"base_nonce", context, 12)
    return AESGCM(expand(suite, secret, b"key", context, 16)).decrypt(nonce, sealed[32:], aad)


def test_hpke_of_rfc_9180():
    """Appendix A.1.1, of the formulas here; then a report that the library has sealed is opened by them."""
    found = _open_hpke(
        bytes.fromhex("4612c550263fc8ad58375df3f557aac531d26850903e55a9f23f21d8534e8ac8"),
        bytes.fromhex(
            "37fda3567bdbd628e88668c3c8d7e97d1d1253b6d4ea6d44c150f741f1bf4431"
            "f938558b5d72f1a23810b4be2ab4f84331acc02fc97babc53a52ae8218a355a9"
            "6d8770ac83d07bea87e13c512a"
        ),
        bytes.fromhex("4f6465206f6e2061204772656369616e2055726e"),
        bytes.fromhex("436f756e742d30"),
    )
    assert found == b"Beauty is truth, truth beauty"
    terms, server = Terms("films", 7, 5, 20), X25519PrivateKey.generate()
    sealed = seal(terms, b"a report", server.public_key())
    assert _open_hpke(server.private_bytes_raw(), sealed, terms.context) == b"a report"


def test_aes_256_gcm_of_nist():
    """Test case 14 of the specification of GCM."""
    assert AESGCM(bytes(32)).encrypt(bytes(12), bytes(16), None).hex() == (
        "cea7403d4d606b6e074ec5d3baf39d18" + "d0d1c8a799996bf0265b98b5d48ab919"
    )


def test_shares_by_hand():
    """P(z) = 1000 + 7 z + 2 z²: P(1) = 1009, P(2) = 1022, P(5) = 1085. Three of them give 1000."""
    common = Derived(b"", b"", (1000, 7, 2))
    shares = {point: _share(common, point.to_bytes(16)) for point in (1, 2, 5)}
    assert [int.from_bytes(each) for each in shares.values()] == [1009, 1022, 1085]
    assert int.from_bytes(combine(weights([1, 2, 5]), shares)) == 1000
    assert int.from_bytes(combine(weights([1, 2]), shares)) == 996


@given(st.lists(st.integers(0, 2**256 - 1), min_size=1, max_size=6), st.integers(1, 2**128 - 1))
def test_a_value_is_that_of_the_polynomial(coefficients, point):
    expected = sum(each * point**power for power, each in enumerate(coefficients)) % (2**256 + 297)
    assert value(tuple(coefficients), point) == expected


def test_a_report_has_its_parts():
    parts = Report.decoded(bytes(range(91)))
    assert [len(each) for each in parts] == [16, 16, 33, 26]
    assert b"".join(parts) == bytes(range(91))
