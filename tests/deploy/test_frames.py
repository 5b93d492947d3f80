"""Texts in one text, and arrays in one record."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, RecordDict
from flwr.proto.fleet_pb2 import PullMessagesRequest
from flwr.proto.node_pb2 import Node

from solera.deploy.common import messages
from solera.deploy.common.frames import join_frames, pack, split_frames, unpack
from solera.deploy.common.packets import from_bytes, to_bytes
from solera.deploy.common.protocol import Packet, Reason, RefusalError

ARRAYS = {"a": np.arange(6, dtype="<f4").reshape(2, 3), "b": np.zeros((0, 4), "<i4"), "c": np.array(7, "<f8")}


def test_texts_come_out_as_they_went_in():
    for texts in ([], [b""], [b"one", b"", b"three" * 1000]):
        assert split_frames(join_frames(texts)) == texts
    head = PullMessagesRequest(node=Node(node_id=5))
    found, parts = unpack(pack(head, {"x": b"1", "y": b""}))
    assert PullMessagesRequest.FromString(found) == head
    assert parts == {"x": b"1", "y": b""}
    assert unpack(b"") == (b"", {})


@pytest.mark.parametrize(
    "text", [b"\x01", struct.pack("<I", 5) + b"four", struct.pack("<I", 2**32 - 1) + b"x"]
)
def test_a_text_that_is_cut_off(text):
    with pytest.raises(ValueError, match="cut off"):
        split_frames(text)
    with pytest.raises(ValueError, match="a part without content"):
        unpack(join_frames([b"head", b"name"]))


@pytest.mark.parametrize("limit", [0, 1 << 20])
def test_arrays_in_one_record_and_in_many(limit, monkeypatch):
    monkeypatch.setattr(messages, "_SMALL", limit)
    content = to_content(Packet({"round": 3}, ARRAYS))
    assert len(content) == (1 if limit else 2)
    found = from_content(content)
    assert found.fields == {"round": 3}
    for name, values in ARRAYS.items():
        assert found.arrays[name].dtype == values.dtype
        assert found.arrays[name].shape == values.shape
        assert found.arrays[name].tolist() == values.tolist()


def record(listed: object, data: object = b"\0" * 8, **more: str) -> RecordDict:
    values = {"fields": "{}", "arrays": json.dumps(listed), "bytes": data, **more}
    return RecordDict({"fields": ConfigRecord(values)})  # type: ignore[arg-type]


BAD = {
    "fewer bytes": (record([["a", "<f4", [3]]]), Reason.MALFORMED),
    "more bytes": (record([["a", "<f4", [1]]]), Reason.MALFORMED),
    "a huge shape": (record([["a", "<f4", [2**40, 2**40]]]), Reason.MALFORMED),
    "a negative shape": (record([["a", "<f4", [-2, -1]]]), Reason.MALFORMED),
    "a shape of truths": (record([["a", "<f4", [True, 2]]]), Reason.MALFORMED),
    "no shape": (record([["a", "<f4", "2"]]), Reason.MALFORMED),
    "objects": (record([["a", "|O", [1]]]), Reason.MALFORMED),
    "one name twice": (record([["a", "<f4", [1]], ["a", "<f4", [1]]]), Reason.MALFORMED),
    "a name that is none": (record([[["a"], "<f4", [2]]]), Reason.MALFORMED),
    "two things": (record([["a", "<f4"]]), Reason.MALFORMED),
    "no list": (record({"a": 1}), Reason.MALFORMED),
    "text for bytes": (record([["a", "<f4", [2]]], "12345678"), Reason.MALFORMED),
    "another field": (record([["a", "<f4", [2]]], secret="x"), Reason.NAMES),
    "both ways": (
        RecordDict({**record([["a", "<f4", [2]]]), "arrays": ArrayRecord()}),
        Reason.NAMES,
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_strangers_may_send(name):
    content, reason = BAD[name]
    with pytest.raises(RefusalError) as error:
        from_content(content)
    assert error.value.reason is reason
