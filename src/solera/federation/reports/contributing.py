"""A device's part in threshold reports: agree to them, and send one message in an epoch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path

import httpx
import stamina
from cryptography.hazmat.primitives.asymmetric import ec

from solera.core.errors import DeployError, DeviceError
from solera.device import reports
from solera.device.device import Device
from solera.federation.node.line import read_key
from solera.federation.reports.service import TAG, Plan
from solera.federation.reports.start import identity
from solera.federation.web.signing import signed_headers
from solera.privacy.reports.measurements import Measurement, measurements
from solera.privacy.reports.reporter import Reporter


class Sender:
    """One device at one helper. It knows the server's public key beforehand, and takes no other."""

    def __init__(
        self,
        client: httpx.Client,
        key: ec.EllipticCurvePrivateKey | None,
        server: bytes,
        *,
        attempts: int = 10,
    ) -> None:
        self._client, self._key, self._server, self._attempts = client, key, server, attempts

    def offer(self) -> tuple[Plan, int, bytes]:
        """What all agree on, and of this epoch its number and the helper's public key."""
        said = self._answer("GET", "/v1/reports").json()
        if bytes.fromhex(said["server"]) != self._server:
            raise DeployError("the helper relays to another server than the owner has agreed to", "ask both")
        plan = Plan.model_validate({name: said[name] for name in Plan.model_fields})
        return plan, int(said["epoch"]), bytes.fromhex(said["helper"])

    def send(
        self,
        reporter: Reporter,
        candidates: Iterable[Measurement],
        federation: str,
        *,
        leaves: Callable[[str, int, bytes], None] = lambda *_: None,
    ) -> int:
        """Send what has not gone yet; returns the epoch. `leaves` is told of all that is about to leave."""
        plan, epoch, helper = self.offer()
        if plan.federation != federation:
            raise DeployError(
                f"the helper is now of {plan.federation!r}, and the owner has agreed to {federation!r}",
                "ask it",
            )
        terms = plan.terms(epoch)
        request = reporter.request(terms, candidates)
        leaves("blinded", epoch, request)
        answer = self._answer("POST", f"/v1/reports/{terms.epoch}/request", request).content
        message = reporter.message(terms, answer, helper, self._server)
        leaves("reports", epoch, message)
        self._answer("POST", f"/v1/reports/{terms.epoch}/message", message)
        return terms.epoch

    def _answer(self, method: str, path: str, body: bytes = b"") -> httpx.Response:
        """The answer to a request, which is asked again while nobody answers."""
        try:
            for attempt in stamina.retry_context(on=httpx.HTTPError, attempts=self._attempts, wait_max=5.0):
                with attempt:
                    headers = {} if self._key is None else self._signed(self._key, method, path, body)
                    answer = self._client.request(method, path, content=body, headers=headers)
                    if answer.is_server_error:
                        answer.raise_for_status()
        except httpx.HTTPError as error:
            raise DeployError(
                f"the helper at {self._client.base_url} does not answer: {error}", "try again later"
            ) from None
        if answer.is_error:
            raise DeployError(
                str(answer.json().get("error", answer.status_code)), "try again in the next epoch"
            )
        return answer

    @staticmethod
    def _signed(key: ec.EllipticCurvePrivateKey, method: str, path: str, body: bytes) -> dict[str, str]:
        now = time.time()
        return signed_headers(key, method, path, body, tag=TAG, created=int(now), nonce=int(now * 1e6))


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
                    steps=[f"least {agreed.least_devices}", *(["pairs ordered"] if agreed.ordered else [])],
                    kind=kind,
                    federation=agreed.federation,
                )

            found = measurements(rows, agreed.newest, ordered=agreed.ordered)
            epoch = sender.send(reporter, found, agreed.federation, leaves=record)
            return epoch, len(ledger.of(epoch))
