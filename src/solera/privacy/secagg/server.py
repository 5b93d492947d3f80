"""The server: one method per stage, which takes the clients' answers and gives what each is sent next."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Self

import numpy as np
from pydantic import BaseModel, ConfigDict

from solera.core.types import Floats
from solera.privacy.identity import SecAggError, is_signed
from solera.privacy.secagg import rules, shamir, vss
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
from solera.privacy.secagg.primitives import (
    Ring,
    agree,
    commitment,
    mask,
    new_secret,
    private_key,
    public_key,
)
from solera.privacy.secagg.rules import Stage
from solera.privacy.secagg.setup import Setup

Answers = Iterable[tuple[int, bytes]]  # who sent it, as the transport knows, and what


class Opening(BaseModel):
    """All that opening a sum needs, beside the sum itself: what a server keeps on its disk meanwhile."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_bytes="base64", val_json_bytes="base64")

    setup: Setup
    advertised: dict[int, bytes]
    hashes: dict[int, dict[int, bytes]]  # of the shares, by dealer and receiver
    unusable: dict[int, tuple[int, ...]]  # whose shares a client could not use
    sharers: tuple[int, ...]
    survivors: tuple[int, ...]
    signers: tuple[int, ...]


class Server:
    """Server side of one round. The server learns only the sum.

    An answer that is not as it should be is left out, with the reason in `refused`, and its sender counts as
    dropped out. If fewer than the threshold are left, the round ends with an error. Whoever is found to have
    sent something that no honest client sends is in `faulty`.
    """

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.stage = Stage.ADVERTISE
        self.refused: dict[int, str] = {}
        self.faulty: dict[int, str] = {}
        self._hashes: dict[int, dict[int, bytes]] = {}
        self._unusable: dict[int, tuple[int, ...]] = {}
        self._advertised: dict[int, Advertisement] = {}
        self._keys = b""
        self._sharers: tuple[int, ...] = ()
        self._survivors: tuple[int, ...] = ()
        self._signers: tuple[int, ...] = ()
        self._sum = np.zeros(0, setup.encoding.dtype)

    @property
    def survivors(self) -> tuple[int, ...]:
        """Clients whose values are in the sum."""
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
                raise SecAggError("a key is listed twice")
            for key in keys:
                agree(probe, key)  # refuses what would make every client refuse later
            seen.update(keys)
            self._advertised[client], raw[client] = made, data

        clients = self._collect(Stage.ADVERTISE, range(len(self.setup.roster)), answers, take)
        message = Keys(self.setup.context, tuple((client, raw[client]) for client in clients)).to_bytes()
        self._keys = hashlib.sha256(message).digest()
        return dict.fromkeys(clients, message)

    def collect_shares(self, answers: Answers) -> dict[int, bytes]:
        """Sealed shares; to each client its boxes, and by what it can check them."""
        parcels: dict[int, dict[int, bytes]] = {}

        def take(client: int, data: bytes) -> None:
            sent = SealedShares.from_bytes(data, self.setup.context)
            _same(client, sent.client)
            boxes, hashes = dict(sent.entries), dict(sent.hashes)
            if boxes.keys() != self._advertised.keys() - {client} or hashes.keys() != self._advertised.keys():
                raise SecAggError("the boxes are not for exactly the clients that advertised keys")
            if any(len(box) != rules.BOX_BYTES for box in boxes.values()):
                raise SecAggError("a box has the wrong size")
            if any(len(each) != vss.HASHES_BYTES for each in hashes.values()):
                raise SecAggError("hashes of shares have the wrong size")
            if [place for place, _ in sent.check] != list(range(self.setup.threshold)):
                raise SecAggError("the shares are for another threshold")
            check = tuple(shamir.number(each) for _, each in sent.check)
            challenge = vss.challenge_of(
                rules.dealing(self.setup, client), {receiver + 1: each for receiver, each in hashes.items()}
            )
            parcels[client] = {
                receiver: rules.Parcel(
                    box, hashes[receiver], challenge, shamir.value(check, receiver + 1)
                ).to_bytes()
                for receiver, box in boxes.items()
            }
            self._hashes[client] = hashes

        self._sharers = self._collect(Stage.SHARE, self._advertised, answers, take)
        return {
            client: Inbox(
                self.setup.context,
                tuple((sender, parcels[sender][client]) for sender in self._sharers if sender != client),
                client,
            ).to_bytes()
            for client in self._sharers
        }

    def collect_masked(self, answers: Answers) -> dict[int, bytes]:
        """Masked inputs, added up as they come; to each client the list of survivors."""
        encoding = self.setup.encoding
        total = np.zeros(encoding.length, encoding.dtype)

        def take(client: int, data: bytes) -> None:
            sent = self._masked_input(client, data)
            if len(sent.vector) != encoding.nbytes:
                raise SecAggError(f"a vector of {len(sent.vector)} bytes, not {encoding.nbytes}")
            np.add(total, np.frombuffer(sent.vector, encoding.dtype), out=total)
            self._unusable[client] = sent.unusable

        self._survivors = self._collect(Stage.MASK, self._sharers, answers, take)
        self._sum = total
        self._check_dealers()
        return dict.fromkeys(self._survivors, Survivors(self.setup.context, self._survivors).to_bytes())

    def _masked_input(self, client: int, data: bytes) -> MaskedInput:
        sent = MaskedInput.from_bytes(data, self.setup.context)
        _same(client, sent.client)
        if not set(sent.unusable) <= set(self._sharers) - {client}:
            raise SecAggError("complains about shares that it was not sent")
        return sent

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

    def opening(self) -> tuple[Opening, Ring]:
        """What is to be kept before anybody is asked to reveal: with it, another server goes on from here."""
        rules.at_stage(self.stage, Stage.UNMASK)
        return Opening(
            setup=self.setup,
            advertised={client: made.to_bytes() for client, made in self._advertised.items()},
            hashes=self._hashes,
            unusable=self._unusable,
            sharers=self._sharers,
            survivors=self._survivors,
            signers=self._signers,
        ), self._sum.copy()

    @classmethod
    def at_opening(cls, opening: Opening, total: Ring) -> Self:
        """Restore a server that was about to open a sum."""
        server = cls(opening.setup)
        server._advertised = {
            client: rules.advertisement(opening.setup, client, data)
            for client, data in opening.advertised.items()
        }
        server._hashes, server._unusable = opening.hashes, opening.unusable
        server._sharers, server._survivors = opening.sharers, opening.survivors
        server._signers, server._sum = opening.signers, total.copy()
        server.stage = Stage.UNMASK
        return server

    def total(self, answers: Answers) -> dict[str, Floats]:
        """Shares; from them the masks, and so the sum of the survivors' values.

        A client that reveals another share than was dealt to it is left out: those of the others are enough.
        """
        dropped = sorted(set(self._sharers) - set(self._survivors))
        seeds: dict[int, dict[int, bytes]] = {client: {} for client in self._survivors}
        mask_keys: dict[int, dict[int, bytes]] = {client: {} for client in dropped}

        def take(client: int, data: bytes) -> None:
            sent = Reveal.from_bytes(data, self.setup.context)
            _same(client, sent.client)
            given = ((seeds, dict(sent.seeds), vss.SEED), (mask_keys, dict(sent.mask_keys), vss.MASK_KEY))
            for shares, found, place in given:
                if found.keys() != shares.keys() - set(self._unusable.get(client, ())):
                    raise SecAggError("the shares are not of the clients that were asked for")
                for dealer, share in found.items():
                    if not self._is_dealt(dealer, client, place, share):
                        self.faulty[client] = f"revealed a wrong share of client {dealer}"
                        raise SecAggError(self.faulty[client])
            for shares, found, _ in given:
                for dealer, share in found.items():
                    shares[dealer][client + 1] = share

        self._collect(Stage.UNMASK, self._signers, answers, take)
        self.stage = Stage.DONE
        for client, shares in seeds.items():
            self._take_off_self_mask(client, self._combined(client, shares))
        for client, shares in mask_keys.items():
            self._take_off_pair_masks(client, self._combined(client, shares))
        return self.setup.encoding.decode(self._sum)

    def _check_dealers(self) -> None:
        """End the round before anything is revealed if too few clients hold shares of some client.

        Of a client and those who complain of it, the more are believed: fewer than a threshold are against.
        """
        for dealer in self._sharers:
            holders = sum(dealer not in self._unusable[client] for client in self._survivors)
            if holders < self.setup.threshold:
                complaints = len(self._survivors) - holders
                self.faulty[dealer] = f"dealt shares that {complaints} clients could not use"
        if self.faulty:
            self.stage = Stage.DONE
            raise SecAggError("too few clients hold shares of a client's secret", "run the round without it")

    def _is_dealt(self, dealer: int, receiver: int, place: int, share: bytes) -> bool:
        purpose, hashes = rules.dealing(self.setup, dealer), self._hashes[dealer][receiver]
        return vss.is_published(purpose, receiver + 1, place, share, hashes)

    def _combined(self, client: int, shares: dict[int, bytes]) -> bytes:
        """Reconstruct a client's secret from a threshold of its shares."""
        points = tuple(sorted(shares))[: self.setup.threshold]
        rules.enough(self.setup, [point - 1 for point in points], f"have shares of client {client}")
        try:
            return shamir.combine(_weights(points), shares)
        except SecAggError as error:
            self.faulty[client] = f"dealt false shares: {error.message}"
            raise

    def _take_off_self_mask(self, client: int, seed: bytes) -> None:
        if commitment(seed, self.setup.purpose("seed", client)) != self._advertised[client].commitment:
            self.faulty[client] = "dealt shares of another seed than it advertised"
            raise SecAggError(f"client {client} {self.faulty[client]}", "run the round without it")
        mask(self._sum, rules.self_mask(self.setup, seed, client), subtract=True)

    def _take_off_pair_masks(self, dropped: int, secret: bytes) -> None:
        """Remove the masks that survivors share with a client that dropped out."""
        if public_key(secret) != self._advertised[dropped].mask_key:
            self.faulty[dropped] = "dealt shares of another mask key than it advertised"
            raise SecAggError(f"client {dropped} {self.faulty[dropped]}", "run the round without it")
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
                    raise SecAggError(f"no answer is expected from client {client}")
                waiting.remove(client)
                take(client, data)
                taken.append(client)
            except SecAggError as error:
                self.refused[client] = error.message
        rules.enough(self.setup, taken, f"are left after stage {stage.name.lower()}")
        self.stage = Stage(stage + 1)
        return tuple(sorted(taken))


@lru_cache(maxsize=64)
def _weights(points: tuple[int, ...]) -> dict[int, int]:
    return shamir.weights(points)


def _same(client: int, claimed: int) -> None:
    if client != claimed:
        raise SecAggError(f"a message of client {claimed} was sent by client {client}")
