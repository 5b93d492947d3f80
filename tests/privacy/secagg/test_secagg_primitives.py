"""Known answers of the standards, through the functions that the protocol calls."""

from __future__ import annotations

import hashlib
import hmac

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from hypothesis import given
from hypothesis import strategies as st

from solera.privacy.identity import is_signed, new_identity, public_identity, read_identity, sign
from solera.privacy.secagg import SecAggError, primitives, shamir

# RFC 8439, appendix A.1, numbers 1, 2 and 4: nonce 0, blocks 0 and 1 of one key and block 2 of another.
ZERO_KEY = bytes(32)
BLOCK_0 = (
    "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
    "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586"
)
BLOCK_1 = (
    "9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed"
    "29b721769ce64e43d57133b074d839d531ed1f28510afb45ace10a1f4b794d6f"
)
OTHER_KEY = bytes([0, 0xFF, *[0] * 30])
OTHER_BLOCK_2 = (
    "72d54dfbf12ec44b362692df94137f328fea8da73990265ec1bbbea1ae9af0ca"
    "13b25aa26cb4a648cb9b9d1be65b2c0924a66c54d545ec1b7374f4872e99f096"
)


@pytest.mark.parametrize("dtype", ["<u4", "<u8"])
def test_the_mask_is_the_key_stream_of_the_standard(dtype):
    values = np.zeros(192 // np.dtype(dtype).itemsize, dtype)
    primitives.mask(values, ZERO_KEY)
    assert values.tobytes()[:128].hex() == BLOCK_0 + BLOCK_1
    values[:] = 0
    primitives.mask(values, OTHER_KEY)
    assert values.tobytes()[128:].hex() == OTHER_BLOCK_2


@pytest.mark.parametrize("dtype", ["<u4", "<u8"])
def test_a_mask_is_added_and_taken_off_across_chunks(dtype):
    size = (primitives._CHUNK // np.dtype(dtype).itemsize) * 2 + 5
    values = np.arange(size, dtype=dtype)
    primitives.mask(values, OTHER_KEY)
    whole = Cipher(ChaCha20(OTHER_KEY, bytes(16)), None).encryptor()
    stream = np.frombuffer(whole.update(bytes(values.nbytes)), dtype)
    assert np.array_equal(values, np.arange(size, dtype=dtype) + stream)
    primitives.mask(values, OTHER_KEY, subtract=True)
    assert np.array_equal(values, np.arange(size, dtype=dtype))


def test_every_byte_of_a_key_counts():
    masks = set()
    for place in range(32):
        values = np.zeros(4, "<u4")
        primitives.mask(values, bytes(place) + b"\1" + bytes(31 - place))
        masks.add(values.tobytes())
    assert len(masks) == 32


def test_hkdf_of_the_standard():
    """RFC 5869, test case 3: neither salt nor info; the first 32 of its 42 bytes."""
    okm = "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d"
    assert primitives.derive(b"\x0b" * 22, b"").hex() == okm


@given(st.binary(min_size=32, max_size=32), st.binary(max_size=100))
def test_hkdf_by_hand(secret, purpose):
    """One block: HMAC(HMAC(0, secret), purpose ‖ 1)."""
    extracted = hmac.digest(bytes(32), secret, hashlib.sha256)
    assert primitives.derive(secret, purpose) == hmac.digest(extracted, purpose + b"\1", hashlib.sha256)


def test_x25519_of_the_standard():
    """RFC 7748, section 6.1."""
    alice = bytes.fromhex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a")
    bob = bytes.fromhex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb")
    of_alice = "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"
    of_bob = "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"
    shared = "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742"
    assert primitives.public_key(alice).hex() == of_alice
    assert primitives.public_key(bob).hex() == of_bob
    assert primitives.agree(primitives.private_key(alice), bytes.fromhex(of_bob)).hex() == shared
    assert primitives.agree(primitives.private_key(bob), bytes.fromhex(of_alice)).hex() == shared


def test_a_public_key_of_low_order_is_refused():
    for public in (bytes(32), b"\1" + bytes(31)):
        with pytest.raises(SecAggError, match="low order"):
            primitives.agree(primitives.private_key(primitives.new_secret()), public)


@given(st.integers(0, 12 + 5 + 16 - 1), st.integers(1, 255))
def test_a_changed_box_is_refused(place, change):
    key = primitives.new_secret()
    box = bytearray(primitives.seal(key, b"plain"))
    assert primitives.unseal(key, bytes(box)) == b"plain"
    box[place] ^= change
    with pytest.raises(SecAggError, match="changed"):
        primitives.unseal(key, bytes(box))


def split(secret, threshold, points):
    line = shamir.polynomial(int.from_bytes(secret), threshold)
    return {point: shamir.share(shamir.value(line, point)) for point in points}


def test_the_field_is_one():
    """2^256 + 297 passes Miller and Rabin's test for 40 bases: a composite does with a chance below 2^-80."""
    odd, twos = shamir.PRIME - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in range(2, 42):
        powers = [pow(base, odd << k, shamir.PRIME) for k in range(twos)]
        assert powers[0] == 1 or shamir.PRIME - 1 in powers


@given(st.binary(min_size=32, max_size=32), st.integers(2, 12), st.data())
def test_any_threshold_of_shares_gives_the_secret(secret, threshold, data):
    shares = split(secret, threshold, range(1, 13))
    points = data.draw(st.permutations(range(1, 13)))[:threshold]
    assert shamir.combine(shamir.weights(points), shares) == secret


def test_shares_by_hand():
    """The line 5 + 3x, at 1 and 2: the value at 0 is 2 · 8 − 11."""
    shares = {1: (8).to_bytes(33), 2: (11).to_bytes(33)}
    assert [shamir.value((5, 3), point) for point in (1, 2)] == [8, 11]
    assert shamir.weights([1, 2]) == {1: 2, 2: shamir.PRIME - 1}
    assert int.from_bytes(shamir.combine(shamir.weights([1, 2]), shares)) == 5


def test_fewer_shares_fit_every_secret():
    """With t − 1 shares, each other secret has a polynomial through them: they tell nothing."""
    shares = split(bytes(32), 3, [1, 2, 3])
    weights = shamir.weights([1, 2, 3])
    for other in (1, 2**255, 2**256 - 1):
        known = sum(weights[p] * shamir.number(shares[p]) for p in (1, 2))
        third = (other - known) * pow(weights[3], -1, shamir.PRIME) % shamir.PRIME
        fake = {**shares, 3: third.to_bytes(33)}
        assert int.from_bytes(shamir.combine(weights, fake)) == other


@pytest.mark.parametrize("share", [b"", bytes(32), bytes(34), b"\xff" * 33, shamir.PRIME.to_bytes(33)])
def test_a_share_outside_the_field_is_refused(share):
    with pytest.raises(SecAggError, match="not an element of the field"):
        shamir.number(share)


def test_both_kinds_of_identity_sign(identities):
    for key in (identities[0], new_identity()):
        public = public_identity(key)
        signature = sign(key, b"said")
        assert is_signed(public, signature, b"said")
        assert not is_signed(public, signature, b"said otherwise")
        assert not is_signed(public, signature[:-1] + bytes([signature[-1] ^ 1]), b"said")
        assert not is_signed(public, b"", b"said")


def test_other_kinds_of_identity_are_refused():
    from cryptography.hazmat.primitives.asymmetric import ec

    for der in (b"", b"nonsense", public_identity(ec.generate_private_key(ec.SECP521R1()))):
        with pytest.raises(SecAggError, match="not one of"):
            read_identity(der)
