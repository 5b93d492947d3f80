"""A device that has taken part in an invented federation, for the tests and pictures of its page."""

from __future__ import annotations

import json
from pathlib import Path

from solera.device.bundle import Bundle
from solera.device.device import Device
from solera.device.ledger import Entry, Ledger, Stage
from solera.device.policy import Agreement

FEDERATION, OTHER = "3f2a" * 16, "b07c" * 16
PEOPLE = 24  # in every masked sum
NOISE = 4.0  # in clips
ROUNDS = 3


def write_device(folder: Path, bundle: Bundle) -> None:
    """A device without a history, asked by two federations, that has uploaded to one of them."""
    device = Device.create(folder, bundle)
    ledger = Ledger(device.store)
    ledger.asked(FEDERATION, Agreement(masked=True, noise=NOISE, rounds=20))
    ledger.join(FEDERATION)
    ledger.asked(OTHER, Agreement(rounds=5))
    send(device, "enrol", -1, {"slots": [1]}, 214)
    nodes = {f"node {number}": 1 for number in range(PEOPLE)}
    members = [{"users": 1} for _ in nodes]
    terms = json.dumps({"least_users": PEOPLE, "groups": [{"members": members, "threshold": PEOPLE - 4}]})
    for round_ in range(ROUNDS):
        context = f"example {round_}"
        ledger.begin(Entry(context, FEDERATION, round_, 0, "", nodes, 0.5, NOISE, terms, b""))
        send(device, "share", round_, {}, 6_180)
        ledger.advance(context, Stage.UPLOADED, None)
        steps = ("clip 0.5", f"noise {NOISE:g}", "masked")
        send(device, "mask", round_, {"message": [20_541]}, 20_541, steps=steps)
    device.close()


def send(
    device: Device,
    kind: str,
    round_: int,
    tensors: dict[str, list[int]],
    size: int,
    *,
    steps: tuple[str, ...] = (),
) -> None:
    """Record a message of so many bytes."""
    device.sent(tensors, bytes(size), round_=round_, steps=steps, kind=kind, federation=FEDERATION)
