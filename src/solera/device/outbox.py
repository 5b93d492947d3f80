"""What has left a device: the record of every message, and what each told the server, in plain words."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from solera.device.store import Store

_KEYS = "keys for hiding uploads, and nothing about your history"
_TOLD = {
    "advertise": _KEYS,
    "share": _KEYS,
    "confirm": "a signature on the list of devices in the sum, and nothing about your history",
    "unmask": "what opens the sum over all devices, and nothing about your upload alone",
    "evaluate": "whether the model would have found your last item, with an answer that is false at random",
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
    """Everything that has ever left the device, oldest first, with what it told in plain words."""
    rows = store.rows(
        "SELECT time, kind, federation, round, tensors, bytes, sha256, steps FROM outbox ORDER BY id"
    )
    covers = _covers(store)
    found = []
    for row in rows:
        sent = dict(row) | {"tensors": json.loads(row["tensors"]), "steps": json.loads(row["steps"])}
        cover = covers.get((sent["federation"], sent["round"]))
        found.append(sent | {"told": told(sent, cover)})
    return found


def is_seen(sent: Mapping[str, Any]) -> bool:
    """Whether a message was an upload that the server could read."""
    return sent["kind"] in ("", "train") and _items(sent) is not None


def told(sent: Mapping[str, Any], cover: int | None = None) -> str:
    """What a message told the server; `cover` is the least number of users in a masked sum, if known."""
    tensors, kind = sent["tensors"], sent["kind"]
    if kind == "enrol":
        people = tensors.get("slots", [0])[0]
        return f"that {people} {'person' if people == 1 else 'people'} on this device can take part"
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
    return _TOLD.get(kind, "a message of an older version; see --raw")


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
