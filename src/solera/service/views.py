"""What the page and other programs are shown of a device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import Field, model_validator

from solera.core.frozen import Frozen
from solera.device.bundle import Item, fingerprint
from solera.device.catalogue import plain, titles_in
from solera.device.choices import Choices
from solera.device.device import Device
from solera.device.models.served import tests_of
from solera.device.policy import Policy
from solera.device.recommending import DeviceRecommendation, Reason

MOST = 500  # recommendations at once
REASONS = 3
_FOUND = 8  # items that a search shows


class Query(Frozen):
    """What an address asks for. Empty values are left out."""

    @model_validator(mode="before")
    @classmethod
    def _given(cls, query: Any) -> Any:
        return {name: value for name, value in dict(query).items() if value != ""}


class Filter(Query):
    """Which items are recommended."""

    genre: str | None = Field(default=None, description="Only items of this genre.")
    from_year: int | None = Field(default=None, description="Only items of this year or later.")
    to_year: int | None = Field(default=None, description="Only items of this year or earlier.")
    listed: bool = Field(default=False, description="Only items of the user's list or library.")
    count: int = Field(default=10, ge=1, le=MOST, description="How many items.")

    def passes(self, item: Item) -> bool:
        """Whether genre and year fit. An item without a year fits no limit on years."""
        if self.genre is not None and self.genre not in item.genres:
            return False
        if item.year is None:
            return self.from_year is None and self.to_year is None
        return (self.from_year or item.year) <= item.year <= (self.to_year or item.year)


class PageFilter(Filter):
    """What the page asks for besides."""

    unlisted: bool = Field(default=False, description="Only items that are not in the user's list.")
    along: str = Field(default="[]", description="Other users who are to like the items, too; in JSON.")


def recommendations(
    device: Device, user: str, wanted: Filter, along: Sequence[str] = ()
) -> list[DeviceRecommendation]:
    """The best items that pass a filter, with reasons where the model has them; none without a history."""
    if not device.has_history(user):
        return []
    listed = set(Choices(device.store, user).listed())
    unlisted = isinstance(wanted, PageFilter) and wanted.unlisted

    def allowed(item: Item) -> bool:
        of_list = item.id in listed
        return wanted.passes(item) and of_list >= wanted.listed and not (of_list and unlisted)

    is_linear = all(device.model(each).is_linear for each in (user, *along))
    reasons = REASONS if is_linear else 0
    return device.recommend(wanted.count, user=user, reasons=reasons, allowed=allowed, along=along)


def shown(device: Device, user: str, found: Sequence[DeviceRecommendation]) -> list[dict[str, Any]]:
    """Recommendations as the page shows them: each with its item, and why for each person."""
    listed, explains = set(Choices(device.store, user).listed()), device.model(user).is_linear

    def because(reasons: Sequence[Reason], raised: float, popular: float) -> dict[str, Any]:
        told = [{"item": item(device, each.item)._asdict(), "part": each.part} for each in reasons]
        return {"reasons": told, "raised": raised, "popular": popular}

    return [
        {
            "item": item(device, one.item)._asdict(),
            "score": one.score,
            "listed": one.item in listed,
            "because": because(one.reasons, one.raised, one.popular) if explains else None,
            "theirs": [because(*each) for each in one.of_others],
        }
        for one in found
    ]


def item(device: Device, id_: str) -> Item:
    """The item of an id, which the catalogue may have lost."""
    row = device.catalogue.number.get(id_)
    return Item(id_, id_, None) if row is None else device.catalogue.items[row]


def search(device: Device, text: str) -> list[Item]:
    """The first items whose title contains a text, those that begin with it first."""
    wanted = plain(text) if text.strip() else ""
    if not wanted:
        return []
    found = [each for each in device.catalogue.items if wanted in plain(each.title)]
    found.sort(key=lambda each: not any(title.startswith(wanted) for title in titles_in(each.title)))
    return found[:_FOUND]


def about(device: Device, user: str, *, alone: bool = False) -> dict[str, Any]:
    """The device, its model, and what can be filtered by; with `alone`, nothing about other people."""
    bundle, items = device.bundle, device.catalogue.items
    manifest, former = bundle.manifest, device.former
    years = [each.year for each in items if each.year is not None]
    others = [] if alone else device.users()
    return {
        "folder": str(device.path.resolve()),
        "user": user,
        "people": [each for each in others if each != user and device.has_history(each)],
        "genres": sorted({genre for each in items for genre in each.genres}),
        "years": [min(years), max(years)] if years else None,
        "listed": len(Choices(device.store, user).listed()),
        "former": former and {"version": former.manifest.catalogue_version, "digest": former.digest},
        "model": {
            "method": manifest.full_method,
            "trained_on": str(manifest.trained.get("dataset", "")),
            "items": manifest.items,
            "catalogue_version": manifest.catalogue_version,
            "library": manifest.library,
            "bytes": bundle.path.stat().st_size,
            "digest": bundle.digest,
            "fingerprint": fingerprint(bundle.key),
            "figures": tests_of(manifest).get("test", {}),
        },
    }


def left(device: Device) -> dict[str, Any]:
    """Everything that has left the device, what it has cost, and what its owner allows."""
    status, fields = device.status(), Policy.model_fields
    policy = [
        {"name": name, "value": value, "about": fields[name].description, "default": fields[name].default}
        for name, value in status["policy"].items()
    ]
    federations = sorted(
        status["federations"], key=lambda each: str(each["id"])
    )  # none moves when it changes
    return {"sent": device.outbox(), "federations": federations, "policy": policy}
