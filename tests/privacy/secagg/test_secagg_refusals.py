"""What an active server or a stranger may try: every attempt is refused and changes nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from parties import PARTS, VALUES, led_to

from solera.privacy.identity import sign
from solera.privacy.secagg import Client, SecAggError, Server, Setup, Stage, make_setup, public_identity
from solera.privacy.secagg import messages as m
from solera.privacy.secagg.primitives import new_secret, public_key
from solera.privacy.secagg.rules import statement


def refuses(parties, client: int, message: bytes, reason: str) -> None:
    """The client does, and is what it was before."""
    before = parties.clients[client].save()
    with pytest.raises(SecAggError, match=reason):
        parties.answer(client, message)
    assert parties.clients[client].save() == before


def changed(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


# Keys


def forged_keys(parties, **other) -> bytes:
    """All advertisements, with something else in that of client 1."""
    told = m.Keys.from_bytes(parties.sent[0], parties.setup.context)
    entries = dict(told.entries)
    made = m.Advertisement.from_bytes(entries[1], parties.setup.context)
    entries[1] = replace(made, **other).to_bytes()
    return replace(told, entries=tuple(entries.items())).to_bytes()


@pytest.mark.parametrize("field", ["box_key", "mask_key", "commitment"])
def test_a_key_that_its_owner_did_not_sign_is_refused(identities, field):
    parties = led_to(Stage.SHARE, identities)
    refuses(parties, 0, forged_keys(parties, **{field: public_key(new_secret())}), "not signed")


@pytest.mark.parametrize("signature", [b"", bytes(64), b"\xff" * 104])
def test_another_signature_is_refused(identities, signature):
    parties = led_to(Stage.SHARE, identities)
    refuses(parties, 0, forged_keys(parties, signature=signature), "not signed")


def test_an_advertisement_under_anothers_number_is_refused(identities):
    parties = led_to(Stage.SHARE, identities)
    entries = dict(m.Keys.from_bytes(parties.sent[0], parties.setup.context).entries)
    entries[1] = entries[2]
    forged = m.Keys(parties.setup.context, tuple(entries.items())).to_bytes()
    refuses(parties, 0, forged, "to another client")


def test_too_few_keys_or_none_of_the_own_are_refused(identities):
    parties = led_to(Stage.SHARE, identities)
    told = m.Keys.from_bytes(parties.sent[0], parties.setup.context)
    refuses(parties, 0, replace(told, entries=told.entries[:2]).to_bytes(), "only 2 clients")
    refuses(parties, 0, replace(told, entries=told.entries[1:]).to_bytes(), "keys are missing from the list")
    stranger = (*told.entries, (9, told.entries[0][1]))
    refuses(parties, 0, replace(told, entries=stranger).to_bytes(), "not in the roster")


def test_keys_that_two_clients_claim_are_refused(identities, monkeypatch):
    """A client that copies another's keys signs them, but is found out."""
    parties = led_to(Stage.SHARE, identities)
    parties.clients[1]._state.stage = Stage.ADVERTISE
    copied = parties.clients[2]._state
    drawn = iter((copied.box_secret, copied.mask_secret, copied.seed))
    with monkeypatch.context() as patched:
        patched.setattr("solera.privacy.secagg.client.new_secret", lambda: next(drawn))
        again = parties.clients[1].advertise()
    entries = dict(m.Keys.from_bytes(parties.sent[0], parties.setup.context).entries)
    entries[1] = again
    refuses(parties, 0, m.Keys(parties.setup.context, tuple(entries.items())).to_bytes(), "listed twice")


# Boxes


def with_boxes(parties, client: int, boxes: dict[int, bytes]) -> bytes:
    return m.Inbox(parties.setup.context, tuple(sorted(boxes.items())), client).to_bytes()


def inboxes_of(parties) -> dict[int, dict[int, bytes]]:
    return {c: dict(m.Inbox.from_bytes(parties.sent[c], parties.setup.context).entries) for c in parties.sent}


PARCEL = 12 + 3 * 33 + 16 + 3 * 32 + 2 * 33  # nonce, shares, tag; hashes; challenge and expected value


@pytest.mark.parametrize("place", [0, 12, 80, 126, 127, 180, 222, 250, 288])
def test_a_box_that_was_changed_is_of_no_use_and_named(identities, place):
    """In any of its parts; the client goes on without the shares in it."""
    parties = led_to(Stage.MASK, identities)
    mine = inboxes_of(parties)[0]
    assert len(mine[1]) == PARCEL == 289
    sent = parties.answer(0, with_boxes(parties, 0, {**mine, 1: changed(mine[1], place)}))
    assert m.MaskedInput.from_bytes(sent, parties.setup.context).unusable == (1,)


def test_boxes_that_were_exchanged_are_of_no_use(identities):
    for forge in (lambda all_: all_[0][2], lambda all_: all_[2][1]):
        parties = led_to(Stage.MASK, identities)
        all_ = inboxes_of(parties)
        sent = parties.answer(0, with_boxes(parties, 0, {**all_[0], 1: forge(all_)}))
        assert m.MaskedInput.from_bytes(sent, parties.setup.context).unusable == (1,)


def test_inboxes_that_cannot_be_are_refused(identities):
    parties = led_to(Stage.MASK, identities)
    mine = inboxes_of(parties)[0]
    refuses(parties, 0, with_boxes(parties, 0, {**mine, 1: mine[1][:-1]}), "ends too early")
    refuses(parties, 0, with_boxes(parties, 0, {**mine, 0: mine[1]}), "without keys")
    refuses(parties, 0, with_boxes(parties, 0, {**mine, 9: mine[1]}), "without keys")
    refuses(parties, 0, with_boxes(parties, 0, {1: mine[1]}), "only 2 clients")
    refuses(parties, 0, parties.sent[1], "to another client")


def test_values_that_do_not_fit_leave_the_client_as_it_was(identities):
    parties = led_to(Stage.MASK, identities)
    before = parties.clients[0].save()
    with pytest.raises(SecAggError, match="not finite"):
        parties.clients[0].mask(parties.sent[0], {"x": np.full(8, np.nan)})
    assert parties.clients[0].save() == before


# Survivors


def survivors(parties, *clients: int) -> bytes:
    return m.Survivors(parties.setup.context, clients).to_bytes()


def test_survivors_that_cannot_be_are_refused(identities):
    parties = led_to(Stage.CONFIRM, identities, dropouts={4: Stage.SHARE})
    refuses(parties, 0, survivors(parties, 0, 1), "only 2 clients have survived")
    refuses(parties, 0, survivors(parties, 1, 2, 3), "lack this client")
    refuses(parties, 0, survivors(parties, 0, 1, 2, 4), "shared no keys")
    refuses(parties, 0, survivors(parties, 0, 1, 2, 77), "shared no keys")


def test_survivors_are_confirmed_once(identities):
    parties = led_to(Stage.CONFIRM, identities)
    parties.answer(0)
    for again in (survivors(parties, 0, 1, 2), parties.sent[0]):
        refuses(parties, 0, again, "stage confirm during stage unmask")
    loaded = Client.load(parties.clients[0].save(), identities[0])
    with pytest.raises(SecAggError, match="stage confirm"):
        loaded.confirm(survivors(parties, 0, 1, 2))


def test_a_client_never_gives_both_shares_of_a_peer(identities):
    """The server tells client 0 that 4 has survived and client 3 that it has not, with all it can get."""
    parties = led_to(Stage.CONFIRM, identities)
    whole = {c: parties.answer(c) for c in (0, 1, 2, 4)}
    without = parties.answer(3, survivors(parties, 0, 1, 2, 3))
    signed = {
        c: m.Confirmation.from_bytes(data, parties.setup.context).signature
        for c, data in {**whole, 3: without}.items()
    }
    parties.server.stage = Stage.UNMASK

    def confirmations(*clients: int) -> bytes:
        return m.Confirmations(parties.setup.context, tuple((c, signed[c]) for c in clients)).to_bytes()

    for clients in ((0, 1, 2), (0, 1, 2, 3), (0, 1, 2, 4), (1, 2, 3)):
        refuses(parties, 3, confirmations(*clients), "has not confirmed these survivors")
    refuses(parties, 3, confirmations(3), "only 1 clients have confirmed")
    refuses(parties, 0, confirmations(0, 1), "only 2 clients have confirmed")
    refuses(parties, 0, confirmations(0, 1, 2, 3), "has not confirmed these survivors")

    given = m.Reveal.from_bytes(parties.answer(0, confirmations(0, 1, 2, 4)), parties.setup.context)
    assert [peer for peer, _ in given.seeds] == [0, 1, 2, 3, 4]
    assert given.mask_keys == ()
    refuses(parties, 0, confirmations(0, 1, 2, 4), "during stage done")
    with pytest.raises(SecAggError, match="during stage done"):
        Client.load(parties.clients[0].save(), identities[0]).unmask(confirmations(0, 1, 2, 4))


def test_shares_are_of_the_dropped_or_of_the_survivors(identities):
    parties = led_to(Stage.UNMASK, identities, dropouts={1: Stage.MASK, 2: Stage.CONFIRM})
    for client in parties.sent:
        given = m.Reveal.from_bytes(parties.answer(client), parties.setup.context)
        assert [peer for peer, _ in given.seeds] == [0, 2, 3, 4]
        assert [peer for peer, _ in given.mask_keys] == [1]


def test_a_message_with_both_shares_of_a_peer_is_refused():
    both = m.Reveal(bytes(32), 0, ((1, b"a"),), ((1, b"b"),)).to_bytes()
    with pytest.raises(SecAggError, match="both secrets"):
        m.Reveal.from_bytes(both, bytes(32))


@pytest.mark.parametrize("told", ["other keys", "other sharers"])
def test_clients_that_were_told_different_things_do_not_unmask(identities, told):
    parties = led_to(Stage.UNMASK, identities)
    state = parties.clients[0]._state
    if told == "other keys":
        state.keys = bytes(32)
    else:
        state.sharers = state.sharers[:-1]
        state.survivors = state.sharers
    refuses(parties, 0, parties.sent[0], "has not confirmed these survivors")


# Other rounds, other stages


@pytest.mark.parametrize("other", ["round", "session", "threshold", "encoding"])
@pytest.mark.parametrize("stage", [Stage.SHARE, Stage.MASK, Stage.CONFIRM, Stage.UNMASK])
def test_messages_of_another_round_are_refused_by_clients(identities, stage, other):
    parties = led_to(stage, identities)
    changes: dict[str, dict[str, Any]] = {
        "round": {"round": 1},
        "session": {"session": bytes(16)},
        "threshold": {"threshold": 4},
        "encoding": {"encoding": parties.setup.encoding.model_copy(update={"clients": 6})},
    }
    replayed = led_to(stage, identities, setup=parties.setup.model_copy(update=changes[other]))
    refuses(parties, 0, replayed.sent[0], "another session, round or setup")


@pytest.mark.parametrize("stage", list(Stage)[:5])
def test_messages_of_another_round_are_refused_by_the_server(identities, stage):
    parties = led_to(stage, identities)
    setup = parties.setup.model_copy(update={"round": 1})
    replayed = led_to(stage, identities, setup=setup)
    answers = {c: replayed.answer(c) for c in replayed.sent}
    with pytest.raises(SecAggError, match="only 0 clients"):
        parties.collect(answers)
    assert set(parties.server.refused.values()) == {"a message belongs to another session, round or setup"}


def test_stages_go_in_order_and_messages_are_of_their_stage(identities):
    parties = led_to(Stage.SHARE, identities)
    client = parties.clients[0]
    for ask in (client.confirm, client.unmask, lambda data: client.mask(data, VALUES)):
        with pytest.raises(SecAggError, match="during stage share"):
            ask(parties.sent[0])
    with pytest.raises(SecAggError, match="during stage share"):
        client.advertise()
    refuses(parties, 0, parties.answers[1], "this is not a valid Keys")
    with pytest.raises(SecAggError, match="during stage share"):
        parties.server.total([])


# What the server checks


def test_a_wrong_answer_costs_its_sender_the_round_and_nobody_else(identities):
    parties = led_to(Stage.MASK, identities)
    answers = {c: parties.answer(c) for c in parties.sent}
    sent = m.MaskedInput.from_bytes(answers[1], parties.setup.context)
    answers[1] = replace(sent, vector=bytes(sent.vector)[:-4]).to_bytes()
    answers[2] = answers[3]
    parties.sent = parties.collect(answers)
    assert parties.server.survivors == (0, 3, 4)
    assert parties.server.refused == {
        1: "a vector of 28 bytes, not 32",
        2: "a message of client 3 was sent by client 2",
    }
    parties.sent = parties.collect({c: parties.answer(c) for c in parties.sent})
    assert parties.collect({c: parties.answer(c) for c in parties.sent})["x"].tolist() == [0.0] * 8


def test_an_answer_counts_once_and_of_members_alone(identities):
    server = Server(led_to(Stage.ADVERTISE, identities).setup)
    made = Client(server.setup, 0, identities[0]).advertise()
    with pytest.raises(SecAggError, match="only 1 clients"):
        server.collect_keys([(0, made), (0, made), (5, made), (-1, made)])
    assert server.refused.keys() == {0, 5, -1}
    with pytest.raises(SecAggError, match="during stage done"):
        server.collect_keys([])


@pytest.mark.parametrize(
    ("spoilt", "reason"),
    [
        (lambda _: bytes(32), "low order"),
        (lambda others: others.mask_key, "listed twice"),
        (lambda others: others.box_key, "listed twice"),
    ],
)
def test_keys_that_would_stop_all_clients_stop_at_the_server(identities, spoilt, reason):
    """Signed as it should be, by a member that means no good."""
    parties = led_to(Stage.ADVERTISE, identities)
    answers = {c: parties.answer(c) for c in parties.sent}
    made = {c: m.Advertisement.from_bytes(data, parties.setup.context) for c, data in answers.items()}
    bad = replace(made[3], mask_key=spoilt(made[0]))
    answers[3] = replace(bad, signature=sign(identities[3], statement(parties.setup, bad))).to_bytes()
    parties.sent = parties.collect(answers)
    assert list(parties.sent) == [0, 1, 2, 4]
    assert reason in parties.server.refused[3]


def with_false_share(parties, answers, client: int, kind: str, who: int) -> None:
    """The client reveals another share than it was dealt."""
    given = m.Reveal.from_bytes(answers[client], parties.setup.context)
    shares = dict(getattr(given, kind))
    shares[who] = (int.from_bytes(shares[who]) ^ 1).to_bytes(33)
    changed: dict[str, Any] = {kind: tuple(shares.items())}
    answers[client] = replace(given, **changed).to_bytes()


@pytest.mark.parametrize(("kind", "who"), [("seeds", 2), ("mask_keys", 1)])
@pytest.mark.parametrize("liar", [0, 3, 4])
def test_a_false_share_is_left_out_and_its_sender_named(identities, kind, who, liar):
    parties = led_to(Stage.UNMASK, identities, n=5, threshold=3, dropouts={1: Stage.MASK})
    answers = {c: parties.answer(c) for c in parties.sent}
    with_false_share(parties, answers, liar, kind, who)
    assert parties.collect(answers)["x"].tolist() == [0.0] * 8
    assert parties.server.faulty == {liar: f"revealed a wrong share of client {who}"}


def test_too_many_false_shares_end_the_round_and_all_are_named(identities):
    parties = led_to(Stage.UNMASK, identities, n=5, threshold=4)
    answers = {c: parties.answer(c) for c in parties.sent}
    for liar in (0, 3):
        with_false_share(parties, answers, liar, "seeds", 2)
    with pytest.raises(SecAggError, match="only 3 clients are left"):
        parties.collect(answers)
    assert parties.server.faulty.keys() == {0, 3}


def test_reveals_that_are_not_what_was_asked_for_are_left_out(identities):
    parties = led_to(Stage.UNMASK, identities, dropouts={1: Stage.MASK})
    answers = {c: parties.answer(c) for c in parties.sent}
    given = m.Reveal.from_bytes(answers[0], parties.setup.context)
    answers[0] = replace(given, seeds=given.seeds[:-1]).to_bytes()
    assert parties.collect(answers)["x"].tolist() == [0.0] * 8
    assert parties.server.refused == {0: "the shares are not of the clients that were asked for"}


# Setups and identities


def test_a_client_has_the_key_of_its_number(identities):
    setup = make_setup(identities[:5], 3, PARTS)
    for number in (1, -5, 5):
        with pytest.raises(SecAggError, match="another key under this number"):
            Client(setup, number, identities[0])
    saved = Client(setup, 0, identities[0]).save()
    with pytest.raises(SecAggError, match="another key under this number"):
        Client.load(saved, identities[1])


def test_a_roster_is_of_trusted_keys_each_once(identities):
    setup = make_setup(identities[:5], 3, PARTS)
    trusted = [public_identity(key) for key in identities[:6]]
    received = Setup.from_bytes(setup.to_bytes(), trusted=trusted)
    assert received == setup
    assert received.context == setup.context
    with pytest.raises(SecAggError, match="not trusted"):
        Setup.from_bytes(setup.to_bytes(), trusted=trusted[1:])
    with pytest.raises(SecAggError, match="listed twice"):
        make_setup([*identities[:3], identities[0]], 3, PARTS)
