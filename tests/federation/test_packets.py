"""Packets as bytes, and what strangers may send in their place."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest

from solera.federation.common.packets import from_bytes, to_bytes
from solera.federation.common.protocol import PROTOCOL, Packet, Reason, RefusalError, check_spoken
from solera.federation.common.wire import join_frames, split_frames

ARRAYS = {"a": np.arange(6, dtype="<f4").reshape(2, 3), "b": np.zeros((0, 4), "<i4"), "c": np.array(7, "<f8")}


def test_a_packet_comes_out_as_it_went_in():
    found = from_bytes(to_bytes(Packet({"round": 3}, ARRAYS)))
    assert found.fields == {"round": 3}
    for name, values in ARRAYS.items():
        assert found.arrays[name].dtype == values.dtype
        assert found.arrays[name].shape == values.shape
        assert found.arrays[name].tolist() == values.tolist()


def test_texts_come_out_as_they_went_in():
    for texts in ([], [b""], [b"one", b"", b"three" * 1000]):
        assert split_frames(join_frames(texts)) == texts


@pytest.mark.parametrize(
    "text", [b"\x01", struct.pack("<I", 5) + b"four", struct.pack("<I", 2**32 - 1) + b"x"]
)
def test_a_text_that_is_cut_off(text):
    with pytest.raises(ValueError, match="cut off"):
        split_frames(text)
    with pytest.raises(RefusalError):
        from_bytes(text)


def packed(listed: object, data: bytes = b"\0" * 8, fields: str = "{}") -> bytes:
    return join_frames([fields.encode(), json.dumps(listed).encode(), data])


BAD = {
    "fewer bytes": packed([["a", "<f4", [3]]]),
    "more bytes": packed([["a", "<f4", [1]]]),
    "a huge shape": packed([["a", "<f4", [2**40, 2**40]]]),
    "a negative shape": packed([["a", "<f4", [-2, -1]]]),
    "a shape of truths": packed([["a", "<f4", [True, 2]]]),
    "no shape": packed([["a", "<f4", "2"]]),
    "objects": packed([["a", "|O", [1]]]),
    "one name twice": packed([["a", "<f4", [1]], ["a", "<f4", [1]]]),
    "a name that is none": packed([[["a"], "<f4", [2]]]),
    "two things": packed([["a", "<f4"]]),
    "no list": packed({"a": 1}),
    "fields that are a list": packed([], b"", "[1]"),
    "deep fields": join_frames([b"[" * 100_000, b"[]", b""]),
    "another text": packed([], b"") + join_frames([b"secret"]),
    "one text": join_frames([b"{}"]),
    "nothing": b"",
}


@pytest.mark.parametrize("name", BAD)
def test_what_strangers_may_send(name):
    with pytest.raises(RefusalError) as error:
        from_bytes(BAD[name])
    assert error.value.reason is Reason.MALFORMED


@pytest.mark.parametrize("spoken", [PROTOCOL - 1, PROTOCOL, PROTOCOL + 1])
def test_neighbouring_versions_read_each_other(spoken):
    check_spoken(Packet({"protocol": spoken}))


@pytest.mark.parametrize("spoken", [PROTOCOL - 2, PROTOCOL + 2, str(PROTOCOL), float(PROTOCOL), True, None])
def test_distant_versions_and_what_is_none_are_refused(spoken):
    with pytest.raises(RefusalError, match="update Solera") as caught:
        check_spoken(Packet({"protocol": spoken}))
    assert caught.value.reason is Reason.PROTOCOL
