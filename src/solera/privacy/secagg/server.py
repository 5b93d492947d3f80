"""The server: one method per stage, which takes the clients' answers and gives what each is sent next."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable

import numpy as np

from solera.privacy.secagg import rules, shamir
from solera.privacy.secagg.encoding import Floats
from solera.privacy.secagg.errors import SecAggError
from solera.privacy.secagg.identity import is_signed
from solera.privacy.secagg.messages import (
    Advertisement,
    Confirmation,
    Confirmations,
    Inbox,
    Keys,
    MaskedInput,
    Reveal,
    SealedShares,
    Survivors,
)
from solera.privacy.secagg.primitives import agree, commitment, mask, new_secret, private_key, public_key
from solera.privacy.secagg.rules import Stage
from solera.privacy.secagg.setup import Setup

Answers = Iterable[tuple[int, bytes]]  # who sent it, as the transport knows, and what


class Server:
    """One round, seen by the one who learns the sum and nothing else.

    An answer that is not as it should be is left out, with the reason in `refused`, and its sender counts as
    dropped out. If fewer than the threshold are left, the round ends with an error.
    """

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.stage = Stage.ADVERTISE
        self.refused: dict[int, str] = {}
        self._advertised: dict[int, Advertisement] = {}
        self._keys = b""
        self._sharers: tuple[int, ...] = ()
        self._survivors: tuple[int, ...] = ()
        self._signers: tuple[int, ...] = ()
        self._sum = np.zeros(0, setup.encoding.dtype)

    @property
    def survivors(self) -> tuple[int, ...]:
        """Whose values are in the sum."""
        return self._survivors

    def collect_keys(self, answers: Answers) -> dict[int, bytes]:
        """Advertisements; to each client those of all."""
        raw: dict[int, bytes] = {}
        seen: set[bytes] = set()
        probe = private_key(new_secret())

        def take(client: int, data: bytes) -> None:
            made = rules.advertisement(self.setup, client, data)
            keys = {made.box_key, made.mask_key}
            if len(keys) < 2 or keys & seen:
                raise SecAggError("a key is there twice")
            for key in keys:
                agree(probe, key)  # refuses what would make every client refuse later
            seen.update(keys)
            self._advertised[client], raw[client] = made, data

        clients = self._collect(Stage.ADVERTISE, range(len(self.setup.roster)), answers, take)
        message = Keys(self.setup.context, tuple((client, raw[client]) for client in clients)).to_bytes()
        self._keys = hashlib.sha256(message).digest()
        return dict.fromkeys(clients, message)

    def collect_shares(self, answers: Answers) -> dict[int, bytes]:
        """Sealed shares; to each client its boxes."""
        boxes: dict[int, dict[int, bytes]] = {}

        def take(client: int, data: bytes) -> None:
            sent = SealedShares.from_bytes(data, self.setup.context)
            _same(client, sent.client)
            found = dict(sent.entries)
            if found.keys() != self._advertised.keys() - {client}:
                raise SecAggError("boxes for other clients than have advertised keys")
            if any(len(box) != rules.BOX_BYTES for box in found.values()):
                raise SecAggError("a box is of another size")
            boxes[client] = found

        self._sharers = self._collect(Stage.SHARE, self._advertised, answers, take)
        return {
            client: Inbox(
                self.setup.context,
                tuple((sender, boxes[sender][client]) for sender in self._sharers if sender != client),
                client,
            ).to_bytes()
            for client in self._sharers
        }

    def collect_masked(self, answers: Answers) -> dict[int, bytes]:
        """Masked inputs, added up as they come; to each client the list of survivors."""
        encoding = self.setup.encoding
        total = np.zeros(encoding.length, encoding.dtype)

        def take(client: int, data: bytes) -> None:
            sent = MaskedInput.from_bytes(data, self.setup.context)
            _same(client, sent.client)
            if len(sent.vector) != encoding.nbytes:
                raise SecAggError(f"a vector of {len(sent.vector)} bytes, not {encoding.nbytes}")
            np.add(total, np.frombuffer(sent.vector, encoding.dtype), out=total)

        self._survivors = self._collect(Stage.MASK, self._sharers, answers, take)
        self._sum = total
        return dict.fromkeys(self._survivors, Survivors(self.setup.context, self._survivors).to_bytes())

    def collect_confirmations(self, answers: Answers) -> dict[int, bytes]:
        """Signatures of the list of survivors; to each client as many as it asks for."""
        said = rules.view(self.setup, self._keys, self._sharers, self._survivors)
        signatures: dict[int, bytes] = {}

        def take(client: int, data: bytes) -> None:
            sent = Confirmation.from_bytes(data, self.setup.context)
            _same(client, sent.client)
            if not is_signed(self.setup.roster[client], sent.signature, said):
                raise SecAggError(f"the survivors are not signed by client {client}")
            signatures[client] = sent.signature

        self._signers = self._collect(Stage.CONFIRM, self._survivors, answers, take)
        entries = tuple((client, signatures[client]) for client in self._signers[: self.setup.threshold])
        return dict.fromkeys(self._signers, Confirmations(self.setup.context, entries).to_bytes())

    def total(self, answers: Answers) -> dict[str, Floats]:
        """Shares; from them the masks, and so the sum of the survivors' values."""
        dropped = sorted(set(self._sharers) - set(self._survivors))
        seeds: dict[int, dict[int, bytes]] = {client: {} for client in self._survivors}
        mask_keys: dict[int, dict[int, bytes]] = {client: {} for client in dropped}

        def take(client: int, data: bytes) -> None:
            sent = Reveal.from_bytes(data, self.setup.context)
            _same(client, sent.client)
            for shares, found in ((seeds, dict(sent.seeds)), (mask_keys, dict(sent.mask_keys))):
                if found.keys() != shares.keys():
                    raise SecAggError("shares of other clients than were asked for")
                for share in found.values():
                    shamir.number(share)
            for shares, found in ((seeds, dict(sent.seeds)), (mask_keys, dict(sent.mask_keys))):
                for peer, share in found.items():
                    shares[peer][client + 1] = share

        helpers = self._collect(Stage.UNMASK, self._signers, answers, take)
        weights = shamir.weights([client + 1 for client in helpers[: self.setup.threshold]])
        for client, shares in seeds.items():
            self._take_off_self_mask(client, shamir.combine(weights, shares))
        for client, shares in mask_keys.items():
            self._take_off_pair_masks(client, shamir.combine(weights, shares))
        return self.setup.encoding.decode(self._sum)

    def _take_off_self_mask(self, client: int, seed: bytes) -> None:
        if commitment(seed, self.setup.purpose("seed", client)) != self._advertised[client].commitment:
            raise SecAggError(f"shares of the seed of client {client} are wrong", "run the round again")
        mask(self._sum, rules.self_mask(self.setup, seed, client), subtract=True)

    def _take_off_pair_masks(self, dropped: int, secret: bytes) -> None:
        """Those that the survivors share with one that dropped out."""
        if public_key(secret) != self._advertised[dropped].mask_key:
            raise SecAggError(f"shares of the mask key of client {dropped} are wrong", "run the round again")
        own = private_key(secret)
        for client in self._survivors:
            public = self._advertised[client].mask_key
            key = rules.pair_mask(self.setup, own, public, dropped, client)
            mask(self._sum, key, subtract=client < dropped)

    def _collect(
        self, stage: Stage, expected: Iterable[int], answers: Answers, take: Callable[[int, bytes], None]
    ) -> tuple[int, ...]:
        """Whose answers were taken. The stage ends here, well or not."""
        rules.at_stage(self.stage, stage)
        self.stage = Stage.DONE
        waiting, taken = set(expected), []
        for client, data in answers:
            try:
                if client not in waiting:
                    raise SecAggError(f"no answer of client {client} is waited for")
                waiting.remove(client)
                take(client, data)
                taken.append(client)
            except SecAggError as error:
                self.refused[client] = error.message
        rules.enough(self.setup, taken, f"are left after stage {stage.name.lower()}")
        self.stage = Stage(stage + 1)
        return tuple(sorted(taken))


def _same(client: int, claimed: int) -> None:
    if client != claimed:
        raise SecAggError(f"a message of client {claimed} was sent by client {client}")
