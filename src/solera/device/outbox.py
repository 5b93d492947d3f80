"""What has left a device: the record of every message, and what each told the server, in plain words."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from solera.core.text import clean_text, counted
from solera.device.store import Store

BECAUSE = "because "  # the step of a refusal: why
_KEYS = "keys for hiding uploads, and nothing about your history"
_TOLD = {
    "advertise": _KEYS,
    "share": _KEYS,
    "confirm": "a signature on the list of devices in the sum, and nothing about your history",
    "unmask": "what opens the sum over all devices, and nothing about your upload alone",
    "evaluate": "whether the model would have found your last item, with an answer that is false at random",
    "blinded": "nothing: it went to the helper, blinded, who sees that this device takes part",
    "finish": "that the trained model has arrived",
    "declined": "that this device does not take part in what the server asked for",
}


def record(
    store: Store,
    tensors: Mapping[str, Sequence[int]],
    payload: bytes,
    *,
    round_: int,
    steps: Sequence[str],
    kind: str,
    federation: str,
) -> None:
    """Record a message before it leaves the device: names, shapes, digest, and what was done to it."""
    row = (
        int(time.time()),
        round_,
        json.dumps({name: list(shape) for name, shape in tensors.items()}),
        len(payload),
        hashlib.sha256(payload).hexdigest(),
        json.dumps(list(steps)),
        kind,
        federation,
    )
    with store.writing() as connection:
        connection.execute(
            "INSERT INTO outbox (time, round, tensors, bytes, sha256, steps, kind, federation)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            row,
        )


def messages(store: Store) -> list[dict[str, Any]]:
    """Everything that has ever left the device, oldest first, with what it told in plain words.

    `people` is the least number of people in the sum that hides an upload, if there is one.
    """
    rows = store.rows(
        "SELECT time, kind, federation, round, tensors, bytes, sha256, steps FROM outbox ORDER BY id"
    )
    covers = _covers(store)
    found = []
    for row in rows:
        sent = dict(row) | {"tensors": json.loads(row["tensors"]), "steps": json.loads(row["steps"])}
        cover = covers.get((sent["federation"], sent["round"]))
        said = {"told": told(sent, cover), "people": cover if sent["kind"] == "mask" else None}
        found.append(sent | said | {"protection": protection(sent)})
    return found


class Latest(NamedTuple):
    """What has left the device since a time, in short."""

    messages: int
    uploads: int
    round: int | None  # of the newest message that belongs to one
    time: int | None  # of the newest message
    declined: str | None  # why the newest message was a refusal, if it was


def latest(store: Store, since: int) -> Latest:
    """Counts, and what the newest message says."""
    (counts,) = store.rows(
        "SELECT COUNT(*) AS messages, SUM(kind IN ('train', 'mask')) AS uploads FROM outbox WHERE time >= ?",
        since,
    )
    newest = store.rows(
        "SELECT time, kind, steps FROM outbox WHERE time >= ? ORDER BY id DESC LIMIT 1", since
    )
    rounds = store.rows(
        "SELECT round FROM outbox WHERE time >= ? AND round >= 0 ORDER BY id DESC LIMIT 1", since
    )
    return Latest(
        counts["messages"],
        counts["uploads"] or 0,
        rounds[0]["round"] if rounds else None,
        newest[0]["time"] if newest else None,
        _reason(json.loads(newest[0]["steps"])) if newest and newest[0]["kind"] == "declined" else None,
    )


def is_seen(sent: Mapping[str, Any]) -> bool:
    """Whether a message was an upload that the server could read."""
    return sent["kind"] in ("", "train") and _items(sent) is not None


def protection(sent: Mapping[str, Any]) -> str:
    """How a message is protected from the server, in plain words; empty for messages without a history."""
    steps = dict(step.split(" ", 1) for step in sent["steps"] if step.startswith(("clip ", "noise ")))
    said = [f"its length limited to {steps['clip']}"] if "clip" in steps else []
    said += [f"noise of {steps['noise']} times that length"] if "noise" in steps else []
    if sent["kind"] == "mask":
        return ", ".join(["hidden in a sum", *said])
    return ", ".join(["the server can read it", *said]) if is_seen(sent) else ""


def told(sent: Mapping[str, Any], cover: int | None = None) -> str:
    """What a message told the server; `cover` is the least number of users in a masked sum, if known."""
    tensors, kind = sent["tensors"], sent["kind"]
    if kind in _COUNTED:
        return _COUNTED[kind](sent)
    if kind == "mask":
        whose = f"at least {cover:,} people, you among them" if cover else "several devices"
        if any(step.startswith("noise") for step in sent["steps"]):
            whose = f"a random part of {whose}, with noise" if cover else f"{whose}, with noise"
        return f"your upload, hidden in a sum over {whose}: the server sees only the sum"
    if is_seen(sent):
        rows, exact = _items(sent) or (0, False)
        people = tensors.get("trained", [1])[0]
        whose = "your history" if people == 1 else f"the histories of the {people} people here"
        items = "1 item" if rows == 1 else f"{rows:,} items"
        what = f"{items} of {whose}" if exact else f"{items}: {whose}, and random ones drawn with it"
        return f"your upload, which the server can read: it shows which items you trained on, {what}"
    if kind == "train":
        sent_any = tensors.keys() - {"slots", "trained"}
        return (
            "your upload, which the server can read" if sent_any else "that there was nothing to train with"
        )
    if kind == "declined" and (reason := _reason(sent["steps"])):
        return f"{_TOLD[kind]}: {reason}"
    return _TOLD.get(kind, "a message of an older version; see --raw")


def _enrolled(sent: Mapping[str, Any]) -> str:
    people = sent["tensors"].get("slots", [0])[0]
    return f"that {people} {'person' if people == 1 else 'people'} on this device can take part"


def is_ordered(sent: Mapping[str, Any]) -> bool:
    """Whether pairs in a threshold report tell which item was first, and how far apart."""
    return "pairs ordered" in sent["steps"]


def _reported(sent: Mapping[str, Any]) -> str:
    steps = dict(step.split(" ", 1) for step in sent["steps"])
    number = counted(sent["tensors"]["reports"][0], "item or pair", "items and pairs")
    return (
        f"{number} of your history{', pairs in their order' * is_ordered(sent)}, each sealed:"
        f" it reads those that at least {steps['least']} devices have reported"
        " in this epoch, and not whose they are; the helper, who passed them on without your name, reads none"
    )


_COUNTED = {"enrol": _enrolled, "reports": _reported}


def _reason(steps: Sequence[str]) -> str:
    """Why a message was a refusal; empty in records of older versions."""
    return next((clean_text(step.removeprefix(BECAUSE)) for step in steps if step.startswith(BECAUSE)), "")


def _items(sent: Mapping[str, Any]) -> tuple[int, bool] | None:
    """How many items an upload names, and whether they are the history alone; None if it names none."""
    tensors = sent["tensors"]
    if "rows" in tensors:
        return int(tensors["rows"][0]), False
    if "items" in tensors and len(tensors["items"]) == 1:  # of a method of one round
        return int(tensors["items"][0]), True
    return None


def _covers(store: Store) -> dict[tuple[str, int], int]:
    """The least number of users in the sum of every masked round, by federation and round."""
    found: dict[tuple[str, int], int] = {}
    for row in store.rows("SELECT federation, round, terms FROM rounds WHERE terms IS NOT NULL"):
        terms = json.loads(row["terms"])
        least = min(
            max(
                terms["least_users"],
                sum(sorted(member["users"] for member in group["members"])[: group["threshold"]]),
            )
            for group in terms["groups"]
        )
        place = row["federation"], row["round"]
        found[place] = min(least, found.get(place, least))
    return found
