"""A device's line to its server: it checks in, fetches what it is to answer, and answers.

It repeats what a server does not take now, for as long as the node runs. Requests are signed; where the
server tells that the device's clock is wrong, the line signs with the server's. What is said in tasks and
answers is read where they are answered: a node that waits needs no numpy for that.
"""

from __future__ import annotations

import http.client
import json
import logging
import secrets
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import stamina
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key

from solera.core.errors import DeployError
from solera.federation.common.address import Address, tag_of
from solera.federation.common.connection import FAILURES, Answer, Connection
from solera.federation.common.wire import ANSWER, BLOB, CHECK_IN, PACKET, unpack_task
from solera.federation.web.signing import device_number, signed_headers
from solera.privacy.identity import new_identity, public_identity

_LOG = logging.getLogger("solera.node")
_WAIT = 25.0  # seconds that a check-in may be kept open
_LONGEST = 30.0  # seconds between two attempts at what a server does not take now
_LAST_WORD = 2.0  # seconds that a server may take to hear that a node leaves
_DROPPED = (409, 410, 413)  # an answer that is not wanted any more, or not in this size
_BUSY = (408, 429, 500, 502, 503, 504)


def _told(details: stamina.instrumentation.RetryDetails) -> None:
    _LOG.info("the server does not answer: %r", details.caused_by)


stamina.instrumentation.set_on_retry_hooks([_told])


class UnknownError(DeployError):
    """The server does not know this key."""


class ConnectedError(DeployError):
    """Another process speaks for this key."""


class Task(NamedTuple):
    """Something to answer: a packet, and a second one with what many devices are sent, both as bytes."""

    id: str
    kind: str
    round: str
    body: bytes
    shared: bytes = b""


class _Passing(Exception):  # noqa: N818 - not for users
    """The server does not take a request now."""


def read_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """Read a node's secret key."""
    try:
        found = load_ssh_private_key(path.read_bytes(), None)
    except (OSError, ValueError, TypeError):
        found = None
    if not isinstance(found, ec.EllipticCurvePrivateKey) or not isinstance(found.curve, ec.SECP256R1):
        raise DeployError(
            f"{path} is not a node's secret key, of P-256", "give --key nodes/NAME, without .pub"
        )
    return found


class Line:
    """One device at one server. A line without a key makes one, for a server that lets everybody in."""

    def __init__(
        self,
        address: Address,
        key: ec.EllipticCurvePrivateKey | None,
        *,
        stop: threading.Event | None = None,
        connection: Connection | None = None,
    ) -> None:
        self._key, self._tag = key or new_identity(), tag_of(address.ca)
        self._connection = connection or Connection(address)
        self.stop = stop or threading.Event()
        self.node_id = device_number(public_identity(self._key))
        self._session = secrets.token_hex(16)
        self._ahead, self._nonce = 0.0, 0  # of the server's clock; of the last request
        self._blob = ("", b"")  # the last one

    def join(self) -> None:
        """Check in once, waiting until the server is there."""
        self._check_in(wait=0, leaving=False, look=True)

    def leave(self) -> None:
        """Tell the server that the device is gone, if the server is there."""
        self.stop.set()
        self._connection.timeout = _LAST_WORD
        try:
            self._check_in(wait=0, leaving=True)
        except (DeployError, *FAILURES, _Passing) as error:
            _LOG.info("the server was not told that the node leaves: %s", error)
        finally:
            self._connection.close()

    def receive(self) -> Task | None:
        """The next task; None if there is none within a while."""
        found = self._check_in(wait=_WAIT, leaving=False)
        if found is None:
            return None
        head, body = found
        shared = self._fetch(head["blob"]) if head["blob"] else b""
        return None if shared is None else Task(head["task"], head["kind"], head["round"], body, shared)

    def send(self, task: Task, reply: bytes) -> None:
        """Answer; what is not wanted any more is dropped."""
        answer = self._ask(f"{ANSWER}{task.id}", reply, PACKET)
        if answer.status in _DROPPED:
            _LOG.warning("an answer was not taken: %s", answer.refusal[0])
        elif answer.is_error:
            raise _error(answer)

    def _check_in(
        self, *, wait: float, leaving: bool, look: bool = False
    ) -> tuple[dict[str, str], bytes] | None:
        """Check in: a task, or nothing, after the time for which the server asks."""
        asked = {"session": self._session, "wait": wait, "leaving": leaving}
        answer = self._ask(CHECK_IN, json.dumps(asked).encode(), "application/json")
        if answer.is_error:
            raise _error(answer)
        if answer.kind == PACKET:
            return None if look else _unpacked(answer.content)
        again = float(answer.json().get("again", 0)) if not leaving else 0.0
        if not look:
            self.stop.wait(min(max(0.0, again), 86_400.0))
        return None

    def _fetch(self, name: str) -> bytes | None:
        """A file that many devices are sent; it is asked for once."""
        if self._blob[0] != name:
            answer = self._trying(lambda: self._connection.ask("GET", f"{BLOB}{name}"))
            if answer.is_error:  # it is deleted with its task
                _LOG.warning("a file was not there: %s", answer.refusal[0])
                return None
            self._blob = (name, answer.content)
        return self._blob[1]

    def _ask(self, path: str, body: bytes, kind: str) -> Answer:
        """A signed request, until the server has an opinion. Its clock and its count are taken over."""
        for _ in range(3):
            answer = self._trying(
                lambda: self._connection.ask("POST", path, body, self._headers(path, body, kind))
            )
            if answer.status != http.client.UNAUTHORIZED or not self._adopt(answer):
                break
        return answer

    def _headers(self, path: str, body: bytes, kind: str) -> dict[str, str]:
        now = time.time() + self._ahead
        self._nonce = max(self._nonce + 1, int(now * 1e6))
        signed = signed_headers(
            self._key, "POST", path, body, tag=self._tag, created=int(now), nonce=self._nonce
        )
        return {**signed, "content-type": kind}

    def _adopt(self, answer: Answer) -> bool:
        """Whether a refusal told something that makes the next attempt another one."""
        try:
            said = answer.json()
            ahead = float(said["now"]) - time.time()
            nonce = int(said.get("nonce", 0))
        except (ValueError, KeyError, TypeError):
            return False
        is_new = abs(ahead - self._ahead) > 1 or nonce >= self._nonce
        if abs(ahead - self._ahead) > 1:
            _LOG.info("the server's clock is %.0f s ahead; requests are signed with it", ahead)
        self._ahead, self._nonce = ahead, max(self._nonce, nonce)
        return is_new

    def _trying(self, ask: Callable[[], Answer]) -> Answer:
        """Ask until the server answers."""
        waits = stamina.retry_context(
            on=(*FAILURES, _Passing),
            attempts=None,
            timeout=None,
            wait_initial=0.5,
            wait_max=_LONGEST,
            wait_jitter=2.0,
        )
        for attempt in waits:
            with attempt:
                if self.stop.is_set() and attempt.num > 2:  # the first may meet a worker that has ended
                    raise DeployError("the node ends", "start it again")
                answer = ask()
                if answer.status in _BUSY:
                    raise _Passing
        return answer


def _unpacked(content: bytes) -> tuple[dict[str, str], bytes]:
    try:
        head, body = unpack_task(content)
        return {name: str(head[name]) for name in ("task", "kind", "round", "blob")}, body
    except (ValueError, KeyError, TypeError):
        raise DeployError("the server sent a task that cannot be read", "update Solera") from None


def _error(answer: Answer) -> DeployError:
    kinds: dict[int, type[DeployError]] = {
        http.client.FORBIDDEN: UnknownError,
        http.client.CONFLICT: ConnectedError,
    }
    return kinds.get(answer.status, DeployError)(*answer.refusal)
