"""Parsers against strangers: random and mutated bytes are refused with the one error, quickly and cheaply."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from parties import led_to

from solera.privacy.secagg import Client, SecAggError, Setup, Stage
from solera.privacy.secagg import messages as m
from solera.privacy.secagg.messages import Reader

QUICK, MANY = 500, 100_000
KINDS = (
    m.Advertisement,
    m.Keys,
    m.SealedShares,
    m.Inbox,
    m.MaskedInput,
    m.Survivors,
    m.Confirmation,
    m.Confirmations,
    m.Reveal,
)
NAMES = [*(kind.__name__ for kind in KINDS), "Setup", "Client"]


@pytest.fixture(scope="module")
def parsers(identities) -> dict[str, tuple[bytes, Callable]]:
    """Of every kind a valid sample, and what reads it."""
    dropouts = {1: Stage.MASK}
    at = {stage: led_to(stage, identities, dropouts=dropouts) for stage in list(Stage)[1:5]}
    context = {stage: parties.setup.context for stage, parties in at.items()}
    reveal = at[Stage.UNMASK].answer(0)
    samples = {
        m.Advertisement: (at[Stage.SHARE].answers[0], context[Stage.SHARE]),
        m.Keys: (at[Stage.SHARE].sent[0], context[Stage.SHARE]),
        m.SealedShares: (at[Stage.MASK].answers[0], context[Stage.MASK]),
        m.Inbox: (at[Stage.MASK].sent[0], context[Stage.MASK]),
        m.MaskedInput: (at[Stage.CONFIRM].answers[0], context[Stage.CONFIRM]),
        m.Survivors: (at[Stage.CONFIRM].sent[0], context[Stage.CONFIRM]),
        m.Confirmation: (at[Stage.UNMASK].answers[0], context[Stage.UNMASK]),
        m.Confirmations: (at[Stage.UNMASK].sent[0], context[Stage.UNMASK]),
        m.Reveal: (reveal, context[Stage.UNMASK]),
    }
    found: dict[str, tuple[bytes, Callable]] = {
        kind.__name__: (data, partial(_read, kind, context=of)) for kind, (data, of) in samples.items()
    }
    found["Setup"] = (at[Stage.SHARE].setup.to_bytes(), Setup.from_bytes)
    found["Client"] = (at[Stage.CONFIRM].clients[0].save(), lambda data: Client.load(data, identities[0]))
    return found


def _read(kind, data, context):
    """What is read without complaint is written the same again: there is one form of everything."""
    message = kind.from_bytes(data, context)
    assert message.to_bytes() == data
    return message


def mutated(rng: np.random.Generator, sample: bytes) -> bytes:
    """Random bytes, or the sample with a few bytes changed, cut, repeated or put in."""
    how = rng.integers(7)
    data = bytearray(sample)
    at, end = sorted(int(place) for place in rng.integers(0, len(data) + 1, 2))
    if how == 0:
        return rng.bytes(int(rng.integers(0, 300)))
    if how == 1:
        return sample[: 37 if len(sample) < 1000 else at] + rng.bytes(int(rng.integers(0, 300)))
    if how == 2:
        return sample[:at]
    if how == 3:
        data[at:at] = rng.bytes(int(rng.integers(1, 9)))
    elif how == 4:
        data[at:end] = b""
    elif how == 5:
        data[at:at] = data[at:end]
    else:
        first = int(rng.choice([0, 37]))  # often behind the head, where lengths and numbers are
        for place in rng.integers(first, len(data), int(rng.integers(1, 5))):
            data[place] = int(rng.choice([0, 1, 127, 255, int(rng.integers(256))]))
    return bytes(data)


def fuzz(sample: bytes, read: Callable, count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    read(sample)
    refused, slowest = 0, 0.0
    tracemalloc.start()
    try:
        for _ in range(count):
            data = mutated(rng, sample)
            begin = time.thread_time()
            try:
                read(data)
            except SecAggError as error:
                assert error.message
                refused += 1
            slowest = max(slowest, time.thread_time() - begin)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert refused > count / 2
    assert slowest < 1
    assert peak < 8 << 20


@pytest.mark.parametrize("name", NAMES)
def test_nothing_else_than_a_refusal(parsers, name):
    sample, read = parsers[name]
    fuzz(sample, read, QUICK, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_nothing_else_than_a_refusal_many_times(parsers, name):
    sample, read = parsers[name]
    fuzz(sample, read, MANY, seed=2)


@pytest.mark.parametrize("stage", [Stage.SHARE, Stage.MASK, Stage.CONFIRM, Stage.UNMASK])
def test_clients_refuse_what_is_mutated_and_go_on(identities, stage):
    """Not the parser alone: the whole stage. Afterwards the true message is still answered."""
    parties, rng = led_to(stage, identities, dropouts={1: Stage.MASK}), np.random.default_rng(3)
    before = parties.clients[0].save()
    for _ in range(60):
        data = mutated(rng, parties.sent[0])
        if data != parties.sent[0]:
            try:
                parties.answer(0, data)
            except SecAggError:
                assert parties.clients[0].save() == before
            else:  # fewer sharers, signers or survivors than there are may still be enough
                parties.clients[0] = Client.load(before, identities[0])
    assert parties.answer(0)


@pytest.mark.parametrize("stage", list(Stage)[:5])
def test_the_server_leaves_out_what_is_mutated(identities, stage):
    rng = np.random.default_rng(4)
    for _ in range(6):
        parties = led_to(stage, identities)
        answers = {c: parties.answer(c) for c in parties.sent}
        for client in (0, 3):
            answers[client] = mutated(rng, answers[client])
        try:
            assert parties.collect(answers)  # three are left, which is the threshold
        except SecAggError as error:  # a share that is a number, but the wrong one, is noticed too late
            assert stage is Stage.UNMASK
            assert "shares" in error.message


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_too_long_is_not_even_read(kind, monkeypatch):
    monkeypatch.setattr(Reader, "take", lambda *_: pytest.fail("was read"))
    monkeypatch.setattr(kind, "LIMIT", 100)
    with pytest.raises(SecAggError, match="too long"):
        kind.from_bytes(bytes(101), bytes(32))


def test_a_count_that_promises_more_than_there_is_costs_nothing():
    head = b"SAG1" + bytes([m.Survivors.KIND]) + bytes(32)
    for count in (1, 4096, 4097, 65535):
        with pytest.raises(SecAggError, match=r"too early|too many"):
            m.Survivors.from_bytes(head + count.to_bytes(2), bytes(32))


@pytest.mark.parametrize("clients", [(1, 1), (2, 1)])
def test_lists_are_in_ascending_order(clients):
    head = b"SAG1" + bytes([m.Survivors.KIND]) + bytes(32)
    with pytest.raises(SecAggError, match="ascending"):
        m.Survivors.from_bytes(head + b"".join(n.to_bytes(2) for n in (2, *clients)), bytes(32))


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[" * 100_000, b"\xff", b'{"round": 1e999}', b"0" * (1 << 21 | 1)]
)
def test_a_setup_that_is_none_is_refused(data):
    with pytest.raises(SecAggError):
        Setup.from_bytes(data)
