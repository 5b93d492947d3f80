"""A device's part in threshold reports: agree to them, and send one message in an epoch."""

from __future__ import annotations

from pathlib import Path

import httpx
from cryptography.hazmat.primitives.asymmetric import ec

from solera.core.errors import DeviceError
from solera.device import reports
from solera.device.device import Device
from solera.federation.node.line import read_key
from solera.federation.reports.sending import Sender
from solera.federation.reports.service import Plan
from solera.federation.reports.start import identity
from solera.privacy.reports.measurements import measurements
from solera.privacy.reports.reporter import Reporter


def offered(helper: str, server: bytes) -> Plan:
    """What a helper offers, if it relays to this server."""
    if not helper.startswith(("https://", "http://127.0.0.1:", "http://localhost:")):
        raise DeviceError(f"{helper!r} is not an address of https", "ask the helper's operator for it")
    with httpx.Client(base_url=helper, timeout=60) as client:
        return Sender(client, None, server, attempts=3).offer()[0]


def agree(device: Device, agreement: reports.Agreement) -> Path:
    """Agree, with a key of the device's own. Returns the public one, for the helper's operator."""
    identity(device.path / reports.KEY, "device")
    agreement.write(device.store)
    return device.path / f"{reports.KEY}.pub"


def contribute(device: Device) -> tuple[int, int]:
    """Send what is new since the last time; returns the epoch, and how many items and pairs went."""
    agreed = reports.Agreement.read(device.store)
    if agreed is None:
        raise DeviceError(
            "you have not agreed to threshold reports",
            f"solera device contribute {device.path} --helper URL --server-key HEX",
        )
    number = device.catalogue.number
    rows = [number[item] for item in device.history(agreed.user) if item in number]
    key: ec.EllipticCurvePrivateKey = read_key(device.path / reports.KEY)
    with httpx.Client(base_url=agreed.helper, timeout=60) as client:
        sender = Sender(client, key, bytes.fromhex(agreed.server), attempts=5)
        with reports.ledger(device.store, agreed.federation) as ledger:
            reporter = Reporter(ledger, agreed.least_devices)

            def record(kind: str, epoch: int, payload: bytes) -> None:
                went = len(ledger.of(epoch))
                device.sent(
                    {"reports": [went]},
                    payload,
                    round_=epoch,
                    steps=[f"least {agreed.least_devices}"],
                    kind=kind,
                    federation=agreed.federation,
                )

            epoch = sender.send(reporter, measurements(rows, agreed.newest), agreed.federation, leaves=record)
            return epoch, len(ledger.of(epoch))
