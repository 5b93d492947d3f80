"""Shares that can be checked: a dealer that deals false ones is found before anything is revealed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parties import led_to

from solera.privacy.secagg import SecAggError, Server, Stage, shamir, vss
from solera.privacy.secagg import client as client_module
from solera.privacy.secagg import messages as m
from solera.privacy.secagg.primitives import seal
from solera.privacy.secagg.server import Opening

PURPOSE = b"test"


def is_held(dealt: vss.Dealt, point: int) -> bool:
    challenge = vss.challenge_of(PURPOSE, dealt.hashes)
    expected = shamir.value(dealt.check, point)
    return vss.holds(
        PURPOSE,
        point,
        dealt.shares[point],
        hashes=dealt.hashes[point],
        challenge=challenge,
        expected=expected,
    )


@settings(max_examples=25)
@given(st.binary(min_size=32, max_size=32), st.binary(min_size=32, max_size=32), st.integers(2, 7))
def test_shares_of_an_honest_dealer_hold_and_give_both_secrets(seed, mask_key, threshold):
    dealt = vss.deal(seed, mask_key, threshold, range(1, 8), PURPOSE)
    assert all(is_held(dealt, point) for point in range(1, 8))
    points = list(range(1, 8))[-threshold:]
    for place, secret in ((vss.SEED, seed), (vss.MASK_KEY, mask_key)):
        shares = {point: dealt.shares[point][place] for point in points}
        assert shamir.combine(shamir.weights(points), shares) == secret
        for point in points:
            assert vss.is_published(PURPOSE, point, place, shares[point], dealt.hashes[point])
            assert not vss.is_published(PURPOSE, point, 1 - place, shares[point], dealt.hashes[point])


@pytest.mark.parametrize("place", [vss.SEED, vss.MASK_KEY, vss.BLINDING])
def test_shares_beside_the_polynomial_are_noticed(monkeypatch, place):
    """The dealer deals another share to point 3, and publishes its hash: only the polynomial does not fit."""
    real = vss.hashes_of

    def other(shares: vss.Shares) -> vss.Shares:
        values = list(shares)
        values[place] = shamir.share((shamir.number(values[place]) + 1) % shamir.PRIME)
        return vss.Shares(*values)

    monkeypatch.setattr(
        vss, "hashes_of", lambda purpose, point, s: real(purpose, point, other(s) if point == 3 else s)
    )
    dealt = vss.deal(bytes(32), bytes(32), 3, range(1, 6), PURPOSE)
    monkeypatch.setattr(vss, "hashes_of", real)
    dealt.shares[3] = other(dealt.shares[3])
    assert vss.hashes_of(PURPOSE, 3, dealt.shares[3]) == dealt.hashes[3]
    assert [point for point in range(1, 6) if not is_held(dealt, point)] == [3]


def test_what_is_published_fits_every_secret():
    """For any other two secrets there is a blinding polynomial that gives the same h."""
    dealt = vss.deal(bytes(32), bytes(32), 3, range(1, 6), PURPOSE)
    rho = vss.challenge_of(PURPOSE, dealt.hashes)
    for seed, mask_key in ((1, 2), (2**255, 7)):
        f, g = (shamir.polynomial(secret, 3) for secret in (seed, mask_key))
        b = tuple(
            (h - rho * x - rho * rho * y) % shamir.PRIME for h, x, y in zip(dealt.check, f, g, strict=True)
        )
        again = tuple((z + rho * x + rho * rho * y) % shamir.PRIME for x, y, z in zip(f, g, b, strict=True))
        assert again == dealt.check


def spoil_boxes(monkeypatch, parties, dealer: int, receivers: set[int]) -> None:
    """The dealer seals other shares for some clients than it publishes."""
    real, order = seal, iter([c for c in parties.clients if c != dealer])
    monkeypatch.setattr(
        client_module,
        "seal",
        lambda key, plain: real(
            key, plain[:-1] + bytes([plain[-1] ^ 1]) if next(order) in receivers else plain
        ),
    )


def shared(monkeypatch, identities, receivers: set[int], threshold: int = 3):
    """A round at stage mask, in which client 2 has dealt false shares to some."""
    parties = led_to(Stage.SHARE, identities, threshold=threshold)
    answers = {}
    for client in parties.sent:
        with monkeypatch.context() as patched:
            if client == 2:
                spoil_boxes(patched, parties, 2, receivers)
            answers[client] = parties.answer(client)
    parties.sent = parties.collect(answers)
    return parties


def test_a_round_goes_on_if_enough_shares_are_good(monkeypatch, identities):
    parties = shared(monkeypatch, identities, {0, 4})
    parties.sent = parties.collect({c: parties.answer(c) for c in parties.sent})
    for _ in range(2):
        parties.sent = parties.collect({c: parties.answer(c) for c in parties.sent})
    assert parties.sent["x"].tolist() == [0.0] * 8
    assert parties.server.faulty == {}


def test_a_dealer_of_too_many_false_shares_is_named_before_anything_is_revealed(monkeypatch, identities):
    parties = shared(monkeypatch, identities, {0, 3, 4})
    with pytest.raises(SecAggError, match="too few clients hold shares"):
        parties.collect({c: parties.answer(c) for c in parties.sent})
    assert parties.server.faulty == {2: "dealt shares that 3 clients could not use"}
    with pytest.raises(SecAggError, match="during stage done"):
        parties.server.collect_confirmations([])


def test_a_complaint_of_what_was_not_sent_is_refused(identities):
    parties = led_to(Stage.MASK, identities)
    answers = {c: parties.answer(c) for c in parties.sent}
    sent = m.MaskedInput.from_bytes(answers[1], parties.setup.context)
    answers[1] = replace(sent, unusable=(1,)).to_bytes()
    parties.collect(answers)
    assert parties.server.refused == {1: "complains about shares that it was not sent"}


def test_a_dealer_of_another_seed_is_named(monkeypatch, identities):
    """Its shares are good, but not of what it advertised: the sum cannot be opened, and it is known why."""
    parties = led_to(Stage.SHARE, identities)
    parties.clients[2]._state.seed = bytes(32)
    for _ in range(3):
        parties.sent = parties.collect({c: parties.answer(c) for c in parties.sent})
    with pytest.raises(SecAggError, match="client 2 dealt shares of another seed"):
        parties.collect({c: parties.answer(c) for c in parties.sent})
    assert parties.server.faulty.keys() == {2}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda sent: {"hashes": sent.hashes[:-1]}, "boxes are not for exactly the clients"),
        (lambda sent: {"hashes": ((0, b"short"), *sent.hashes[1:])}, "hashes of shares have the wrong size"),
        (lambda sent: {"check": sent.check[:-1]}, "another threshold"),
        (lambda sent: {"check": ((0, b"\xff" * 33), *sent.check[1:])}, "not an element of the field"),
    ],
)
def test_shares_that_cannot_be_checked_are_refused(identities, change, reason):
    parties = led_to(Stage.SHARE, identities)
    answers = {c: parties.answer(c) for c in parties.sent}
    sent = m.SealedShares.from_bytes(answers[1], parties.setup.context)
    answers[1] = replace(sent, **change(sent)).to_bytes()
    parties.collect(answers)
    assert reason in parties.server.refused[1]


@pytest.mark.parametrize("dropouts", [{}, {1: Stage.MASK, 2: Stage.CONFIRM}])
def test_another_server_opens_what_one_was_about_to(identities, dropouts):
    parties = led_to(Stage.UNMASK, identities, dropouts=dropouts)
    kept, total = parties.server.opening()
    answers = {c: parties.answer(c) for c in parties.sent}
    first = parties.collect(answers)
    again = Server.at_opening(Opening.model_validate_json(kept.model_dump_json()), total)
    assert again.total(answers.items())["x"].tolist() == first["x"].tolist() == [0.0] * 8
    assert again.survivors == parties.server.survivors
