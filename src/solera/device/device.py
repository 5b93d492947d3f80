"""A device: one folder, a person's history in it, and a bundle to recommend with. Nothing needs a network."""

from __future__ import annotations

import math
import shutil
import time as clock
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from solera.core.errors import BundleError, DeviceError, SoleraError
from solera.core.text import clean_text
from solera.device.aliases import Aliases, matched
from solera.device.bundle import Bundle, Item, fingerprint
from solera.device.catalogue import Catalogue
from solera.device.choices import Choices
from solera.device.folder import DATABASE, bundle_file, erase_uploads, install, make_folder, make_private
from solera.device.history import History, Row, forget_item, user_id
from solera.device.store import VERSION, Store

if TYPE_CHECKING:  # what needs numpy is imported where it is used: most commands read or change a history
    from numpy.typing import NDArray

    from solera.device.models.served import Served
    from solera.device.recommending import DeviceRecommendation
    from solera.device.tensors import Arrays

ME = "me"  # the user of a folder that has one
_FORMER = "former_bundle"  # the setting that names the bundle before the last update
NEWEST = "newest_catalogue"  # the setting that says which version a federation's server has


class Device:
    """An open device's folder."""

    def __init__(self, path: Path, store: Store) -> None:
        self.path, self.store = path, store
        self._settings = store.settings()

    @classmethod
    def create(cls, path: Path, bundle: Bundle) -> Device:
        """Create a device that trusts the bundle's key from then on."""
        if Store.version_of(path / DATABASE):
            raise DeviceError(
                f"{path} already contains a device", "`solera device update` installs a new bundle"
            )
        new = not path.exists()
        make_folder(path)
        try:
            install(bundle, path)
        except SoleraError:
            if new:
                shutil.rmtree(path, ignore_errors=True)
            raise
        store = Store(path / DATABASE)
        store.create({"key": bundle.key.hex(), **_about(bundle)})
        return cls(path, store)

    @classmethod
    def open(cls, path: Path) -> Device:
        """Open an existing device."""
        version = Store.version_of(path / DATABASE)
        if version == 0:
            raise DeviceError(f"{path} contains no device", f"solera device init {path} --bundle FILE")
        if version > VERSION:
            raise DeviceError(
                f"{path} was written by a newer version of Solera (tables {version}, here {VERSION})",
                "pip install --upgrade solera",
            )
        make_private(path)
        store = Store(path / DATABASE)
        store.migrate(version)
        return cls(path, store)

    def close(self) -> None:
        """Give the files back."""
        self.store.close()

    @property
    def key(self) -> bytes:
        """The publisher's key. Only bundles signed with it are accepted."""
        return bytes.fromhex(self._settings["key"])

    @cached_property
    def bundle(self) -> Bundle:
        """The bundle in use, checked again."""
        return self._installed(self._settings["bundle"])

    def _installed(self, digest: str) -> Bundle:
        return Bundle.installed(bundle_file(self.path, digest), self.key, digest)

    @cached_property
    def catalogue(self) -> Catalogue:
        """The bundle's items."""
        return Catalogue(self.bundle.catalogue())

    def update(self, path: Path) -> Bundle:
        """Install a newer bundle of the same publisher. The history is kept."""
        bundle = Bundle.open(path, self.key)
        held = int(self._settings["catalogue_version"])
        if bundle.manifest.catalogue_version < held:
            raise BundleError(
                f"{path} has catalogue version {bundle.manifest.catalogue_version}, older than {held}",
                "ask the publisher for a bundle that is not older",
            )
        install(bundle, self.path)
        self._use(bundle)
        return self.bundle

    @property
    def former(self) -> Bundle | None:
        """The bundle that the last update replaced."""
        digest = self._settings.get(_FORMER)
        return self._installed(digest) if digest and bundle_file(self.path, digest).exists() else None

    def go_back(self) -> Bundle:
        """Use the bundle that the last update replaced. Going back again undoes it."""
        former = self.former
        if former is None:
            raise DeviceError(
                f"{self.path} has no earlier model", "a device keeps the model that an update replaced"
            )
        older = former.manifest.catalogue_version < int(self._settings["catalogue_version"])
        if older and self.store.rows("SELECT 1 FROM tensors LIMIT 1"):
            raise DeviceError(
                "the earlier model has an older catalogue than the federation that this device is in",
                "use the present one, or make a new device with the earlier bundle",
            )
        self._use(former)
        return self.bundle

    def _use(self, bundle: Bundle) -> None:
        """Make an installed bundle the one in use. A trained one takes the place of what was shared."""
        former = self._settings["bundle"]
        with self.store.writing() as connection:
            for name, value in _about(bundle).items():
                self.store.set(name, value)
            if former != bundle.digest:
                self.store.set(_FORMER, former)
            if bundle.manifest.trained:
                connection.execute("DELETE FROM tensors WHERE kind = 'shared'")
        self._settings = self.store.settings()
        kept = {bundle_file(self.path, self._settings.get(name, "")) for name in ("bundle", _FORMER)}
        for file in self.path.glob("*.bundle"):
            if file not in kept:
                file.unlink(missing_ok=True)
        for old in ("bundle", "catalogue", "_bundled_model"):
            self.__dict__.pop(old, None)

    @property
    def entries(self) -> History:
        """The histories with all their entries."""
        return History(self.store, self.catalogue)

    def add(self, item: str, *, time: int | None = None, user: str = ME, source: str = "by hand") -> bool:
        """Add an interaction of a user with an item, by id. Return False if it is already known."""
        when = int(clock.time()) if time is None else time
        return bool(self.entries.add([(item, when, True)], user, source))

    def add_all(self, rows: Iterable[tuple[str, int | None] | Row], user: str, source: str) -> int:
        """Add many items with times (None: unknown) in one transaction; return how many were new.

        A third value of a row says whether the user liked the item (None: not said). Items that are not liked
        are seen only: they are not recommended, and nothing is learned from them.
        """
        return self.entries.add(
            ((row[0], row[1], row[2] if len(row) > 2 else None) for row in rows), user, source
        )

    def history(self, user: str = ME) -> list[str]:
        """The user's items that count, each where it was first met, oldest first."""
        return self.entries.items(user)

    def has_history(self, user: str = ME) -> bool:
        """Whether an item of the catalogue counts in the user's history."""
        return any(item in self.catalogue.number for item in self.times(user))

    def times(self, user: str = ME) -> dict[str, int | None]:
        """When the user first met each item that counts, in seconds since 1970 (None: unknown)."""
        return self.entries.times(user)

    def users(self) -> list[str]:
        """Everybody who has something on this device, oldest first."""
        return [str(row["name"]) for row in self.store.rows("SELECT name FROM users ORDER BY id")]

    def holds(self, item: str) -> bool:
        """Whether anybody's history has an item of that id, in the catalogue or no longer."""
        return bool(self.store.rows("SELECT 1 FROM interactions WHERE item = ? LIMIT 1", item))

    def find(self, text: str, user: str = ME) -> Item:
        """The item of an id or a title, also of a title that the user has matched with an item before."""
        row = self.catalogue.number.get(matched(Aliases(self.store, user).by_key(), text, None) or "")
        return self.catalogue.find(text) if row is None else self.catalogue.items[row]

    def recommend(
        self,
        k: int = 10,
        *,
        user: str = ME,
        reasons: int = 0,
        allowed: Callable[[Item], bool] | None = None,
        along: Sequence[str] = (),
    ) -> list[DeviceRecommendation]:
        """The k items to show, without those of the history and hidden ones; with the reasons for each.

        Reasons are the items of the history that raised a score most. `allowed` filters the items. `along`
        are other users of the device who are to like them, too: nothing is shown that one of them has met.
        """
        from solera.device.recommending import Person, recommend  # noqa: PLC0415

        known, people = self.catalogue.number, []
        out: set[str] = set()
        for name in (user, *along):
            times = {item: time for item, time in self.times(name).items() if item in known}
            if not times:
                raise self._without_history(name)
            choices = Choices(self.store, name)
            disliked = choices.disliked()
            out |= {*self.entries.items(name, seen_only=True), *choices.hidden(), *disliked}
            people.append(Person(self.model(name), times, disliked))
        return recommend(people, self.catalogue, left_out=out, k=k, reasons=reasons, allowed=allowed)

    def _without_history(self, user: str) -> DeviceError:
        if self.entries.items(user, seen_only=True):
            return DeviceError(
                f"nothing in the history of {user!r} counts: all is seen only, or not in the catalogue",
                f"solera device add {self.path} TITLE, or import with a lower --like-from",
            )
        return DeviceError(
            f"user {user!r} has no history yet", f"solera device add {self.path} TITLE, or import a file"
        )

    def similar(self, item: str, k: int = 10, *, user: str = ME) -> list[Item]:
        """The k items that the model connects most with an item."""
        items, row = self.catalogue.items, self.catalogue.number[self.catalogue.find(item).id]
        return [items[each] for each in self.model(user).similar(row, k)]

    def model(self, user: str = ME) -> Served:
        """The model that the user is served with."""
        shared, personal = self.shared(user), self.kept(user)
        return self._open_model(shared, personal) if shared or personal else self._bundled_model

    @cached_property
    def _bundled_model(self) -> Served:
        """The bundle's own model, which is the same for everybody."""
        return self._open_model()

    def _open_model(self, *parameters: Arrays) -> Served:
        from solera.device.models.opened import open_model  # noqa: PLC0415

        return open_model(self.bundle, *parameters)

    def forget(self, *, item: str | None = None, user: str | None = None) -> int:
        """Delete an item's interactions (of one user, or of all), a user with all there is, or everything.

        Everything is also the record of what has left the device, and its part in threshold reports. Files
        that were uploaded to the page are deleted in any case. Returns how many interactions went. An error
        says if they are deleted, but copies of them are left in the files.
        """
        erase_uploads(self.path)  # first: an import under way sees it, and adds nothing afterwards
        with self.store.writing() as connection:
            before = connection.execute("SELECT COUNT(*) FROM interactions").fetchone()[0]
            if item is not None:
                forget_item(connection, item, user)
            elif user is not None:
                connection.execute("DELETE FROM users WHERE name = ?", (user,))
            else:
                for table in ("users", "tensors", "outbox"):
                    connection.execute(f"DELETE FROM {table}")
            after = connection.execute("SELECT COUNT(*) FROM interactions").fetchone()[0]
        from solera.device import reports  # noqa: PLC0415 - not to recommend

        reports.forget_missing(self.store, self.catalogue)
        if item is None and user is None:
            reports.forget_all(self.store, self.path)
        self.store.wipe()
        return int(before - after)

    def keep(self, user: str, tensors: Mapping[str, NDArray[Any]]) -> None:
        """Replace a user's personal parameters in one transaction."""
        from solera.device.tensors import put_tensors  # noqa: PLC0415

        with self.store.writing() as connection:
            put_tensors(connection, "personal", user_id(connection, user), tensors)

    def kept(self, user: str = ME) -> Arrays:
        """The latest personal parameters of the user."""
        return self._tensors("pending", user) or self.personal(user)

    def personal(self, user: str = ME) -> Arrays:
        """The personal parameters without updates that the server has not accepted yet."""
        return self._tensors("personal", user)

    def shared(self, user: str = ME) -> Arrays:
        """What a federation shared with everybody and with this user; empty before the first round.

        Somebody who has yet to get a version of a table gets the mean of those that the others here have.
        """
        from solera.device.tensors import get_tensors, mean_of  # noqa: PLC0415

        common = self.store.rows("SELECT * FROM tensors WHERE kind = 'shared' AND user IS NULL")
        own = self._tensors("shared", user)
        if not own:
            rows = self.store.rows("SELECT * FROM tensors WHERE kind = 'shared' AND user IS NOT NULL")
            own = mean_of(get_tensors([row]) for row in rows)
        return get_tensors(common) | own

    def _tensors(self, kind: str, user: str) -> Arrays:
        from solera.device.tensors import get_tensors  # noqa: PLC0415

        owner = "(SELECT id FROM users WHERE name = ?)"
        rows = self.store.rows(f"SELECT * FROM tensors WHERE kind = ? AND user = {owner}", kind, user)
        return get_tensors(rows)

    def sent(
        self,
        tensors: Mapping[str, Sequence[int]],
        payload: bytes,
        *,
        round_: int,
        steps: Sequence[str],
        kind: str = "",
        federation: str = "",
    ) -> None:
        """Record what leaves the device, before it does: names, shapes, digest, and what was done to it.

        `kind` is the kind of message, and `declined` for a refusal.
        """
        from solera.device import outbox  # noqa: PLC0415 - not to recommend

        outbox.record(
            self.store, tensors, payload, round_=round_, steps=steps, kind=kind, federation=federation
        )

    def outbox(self) -> list[dict[str, Any]]:
        """Everything that has ever left the device, oldest first, with what it told in plain words."""
        from solera.device import outbox, reports  # noqa: PLC0415 - not to recommend

        sent = outbox.messages(self.store)
        names = {each["federation"] for each in sent if each["kind"] == "reports"}
        went = {name: reports.went(self.store, self.catalogue, name) for name in names}
        for each in sent:
            if each["kind"] == "reports":
                each["pairs"] = went[each["federation"]].get(each["round"], [])
        return sent

    def status(self) -> dict[str, Any]:
        """Summary of the folder's contents."""
        from solera.device.policy import Policy  # noqa: PLC0415 - not to recommend

        users = self.store.rows(
            "SELECT name, (SELECT COUNT(*) FROM interactions WHERE user = users.id) AS interactions,"
            " (SELECT COUNT(DISTINCT item) FROM interactions WHERE user = users.id) AS items,"
            " (SELECT COUNT(*) FROM seen_only WHERE user = users.id) AS seen_only,"
            " (SELECT COUNT(*) FROM tensors WHERE kind = 'personal' AND user = users.id) AS own_tensors"
            " FROM users ORDER BY users.id"
        )
        manifest = self.bundle.manifest
        return {
            "device": str(self.path),
            "method": manifest.full_method,
            "catalogue_version": manifest.catalogue_version,
            "newest_catalogue": max(manifest.catalogue_version, int(self._settings.get(NEWEST, 0))),
            "catalogue_items": manifest.items,
            "bundle": self.bundle.digest,
            "publisher": fingerprint(self.key),
            "users": [dict(row) | {"name": clean_text(row["name"])} for row in users],
            "federations": self._federations(),
            "policy": Policy.read(self.store).model_dump(),
            "sent": len(self.outbox()),
            "database": self.store.rows("PRAGMA integrity_check")[0][0],
        }

    def _federations(self) -> list[dict[str, Any]]:
        """Those that have asked, with what the owner said and what it has cost so far."""
        from solera.device.ledger import Ledger  # noqa: PLC0415 - not to recommend
        from solera.device.policy import Policy  # noqa: PLC0415
        from solera.dp.accounting import concentrated_epsilon  # noqa: PLC0415

        ledger, delta = Ledger(self.store), Policy.read(self.store).delta
        found = []
        for each in ledger.federations():
            epsilon = concentrated_epsilon(ledger.spent(each["id"]).here, delta)
            cost = {"epsilon": epsilon if math.isfinite(epsilon) else None, "delta": delta}
            cost["evaluation_epsilon"] = ledger.evaluation_epsilon(each["id"])
            found.append(each | {"uploads": ledger.uploads(each["id"])} | cost)
        return found


def _about(bundle: Bundle) -> dict[str, str]:
    return {"bundle": bundle.digest, "catalogue_version": str(bundle.manifest.catalogue_version)}
