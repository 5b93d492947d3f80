"""The REST interface for other programs: recommendations (scope read) and interactions (scope add)."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from solera.core.errors import DataError
from solera.core.types import Frozen
from solera.device import bundle
from solera.device.device import Device
from solera.device.tokens import ADD, READ
from solera.service import views
from solera.service.access import Access
from solera.service.reading import body, query
from solera.service.worker import Worker

VERSION = "/api/v1"
RECOMMENDATIONS, ITEMS, INTERACTIONS = (
    f"{VERSION}/{name}" for name in ("recommendations", "items", "interactions")
)
_LONGEST = 500  # characters of a title, an id or a search


class Item(Frozen):
    """An item of the catalogue."""

    id: str
    title: str
    year: int | None = None
    genres: list[str] = Field(default_factory=list)
    ids: dict[str, str] = Field(default_factory=dict, description="Of the same item elsewhere, by kind.")


class Reason(Frozen):
    """An item of the history that raised a score, and by how much."""

    item: Item
    part: float


class Recommendation(Frozen):
    """A recommended item."""

    rank: int
    item: Item
    score: float
    reasons: list[Reason] = Field(description="Empty for models that do not score by single items.")


class Recommendations(Frozen):
    """Recommended items, best first; none while the history is empty."""

    recommendations: list[Recommendation]


class Search(Frozen):
    """What to look for in the catalogue."""

    search: str = Field(max_length=_LONGEST, description="A part of the title.")


class Items(Frozen):
    """Items of the catalogue, at most eight."""

    items: list[Item]


class Interaction(Frozen):
    """Something that the user has met: an item by its id, or by its title."""

    item: str | None = Field(default=None, max_length=_LONGEST, description="Id in the catalogue.")
    title: str | None = Field(default=None, max_length=_LONGEST, description="Title, instead of the id.")
    year: int | None = Field(default=None, ge=1, le=9999, description="Year that goes with the title.")
    ids: dict[bundle.IdKind, Annotated[str, Field(max_length=_LONGEST)]] = Field(
        default_factory=dict, description="Ids elsewhere, which are looked for first."
    )
    time: int | None = Field(
        default=None, ge=-(10**12), le=10**12, description="Seconds since 1970; null if unknown."
    )
    liked: bool | None = Field(
        default=None, description="False: seen only, so that nothing is learned from it."
    )

    @model_validator(mode="after")
    def _one(self) -> Self:
        if self.item is not None and (self.title is not None or self.ids):
            raise ValueError("give either item, or title and ids")
        if self.item is None and self.title is None and not self.ids:
            raise ValueError("give an item, a title or ids")
        return self

    def named(self) -> str:
        """The title or id, as it was given."""
        text = self.item or self.title or ", ".join(f"{kind}:{id_}" for kind, id_ in self.ids.items())
        return text if self.year is None else f"{text} ({self.year})"


class Interactions(Frozen):
    """Interactions to add, in one step: all that are found, or none if one is wrong."""

    interactions: list[Interaction] = Field(min_length=1, max_length=1_000)


class Added(Frozen):
    """How many interactions were taken, and titles and ids that are not in the catalogue.

    Whether the history had them before is not said: that is for those who may read.
    """

    taken: int
    by_id: int = Field(default=0, description="How many of them were found by an id; the others by title.")
    not_found: list[str]


class Refusal(Frozen):
    """What is wrong, and what to do next."""

    error: str
    next: str


class ApiRoutes:
    """The paths under /api/."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def routes(self, access: Access) -> list[Route]:
        """All paths, each with the scopes of which a caller needs one."""
        return [
            Route(RECOMMENDATIONS, access.needs(READ)(self.recommend), methods=["GET"]),
            Route(ITEMS, access.needs(READ, ADD)(self.search), methods=["GET"]),
            Route(INTERACTIONS, access.needs(ADD)(self.add), methods=["POST"]),
        ]

    async def recommend(self, request: Request) -> Response:
        """Recommendations from the user's history."""
        wanted, user = query(request, views.Filter), request.state.user

        def job(device: Device) -> Recommendations:
            shown = [
                Recommendation(
                    rank=one.rank,
                    item=_item(views.item(device, one.item)),
                    score=one.score,
                    reasons=[
                        Reason(item=_item(views.item(device, reason.item)), part=reason.part)
                        for reason in one.reasons
                    ],
                )
                for one in views.recommendations(device, user, wanted)
            ]
            return Recommendations(recommendations=shown)

        return _json(await self._worker.run(job))

    async def search(self, request: Request) -> Response:
        """Items by a part of their title."""
        text = query(request, Search).search
        found = await self._worker.run(lambda device: views.search(device, text))
        return _json(Items(items=[_item(each) for each in found]))

    async def add(self, request: Request) -> Response:
        """Add interactions to the user's history."""
        given, user = (await body(request, Interactions)).interactions, request.state.user

        def job(device: Device) -> Added:
            rows, missing, by_id = [], [], 0
            for each in given:
                found = _find(device, each, user)
                if found is None:
                    missing.append(each.named())
                else:
                    rows.append((found, each.time, each.liked))
                    by_id += each.item is not None or device.catalogue.by_ids(each.ids) is not None
            device.add_all(rows, user, "api")
            return Added(taken=len(rows), by_id=by_id, not_found=missing)

        return _json(await self._worker.run(job))


def _find(device: Device, each: Interaction, user: str) -> str | None:
    if each.item is not None:
        return each.item if each.item in device.catalogue.number else None
    if (same := device.catalogue.by_ids(each.ids)) is not None or each.title is None:
        return None if same is None else same.id
    try:
        return device.find(each.named(), user).id
    except DataError:
        return None


def _item(item: bundle.Item) -> Item:
    return Item(id=item.id, title=item.title, year=item.year, genres=list(item.genres), ids=dict(item.ids))


def _json(answer: Frozen) -> JSONResponse:
    return JSONResponse(answer.model_dump())
