"""A device that sends one night's reports to a helper."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import httpx
import stamina
from cryptography.hazmat.primitives.asymmetric import ec

from solera.core.errors import DeployError
from solera.federation.reports.service import TAG, Plan
from solera.federation.web.signing import signed_headers
from solera.privacy.reports.measurements import Measurement
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
