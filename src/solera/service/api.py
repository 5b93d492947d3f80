"""The REST interface for other programs: recommendations (scope read) and interactions (scope add)."""

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Self, TypeVar

from fastapi import Depends, FastAPI, Query, Security
from fastapi.exceptions import RequestValidationError
from fastapi.security import HTTPBearer
from pydantic import Field, model_validator
from starlette.requests import Request
from starlette.responses import Response

from solera.core.errors import DataError, SoleraError
from solera.core.frozen import Frozen
from solera.device import bundle
from solera.device.device import Device
from solera.device.tokens import ADD, READ
from solera.service import views
from solera.service.access import Access, Caller, failed
from solera.service.guard import RefusedError, refused
from solera.service.worker import Worker

VERSION = "/api/v1"
RECOMMENDATIONS, SIMILAR, ITEMS, INTERACTIONS = (
    f"{VERSION}/{name}" for name in ("recommendations", "similar", "items", "interactions")
)
Kind = TypeVar("Kind")
_REFUSED: dict[int | str, str] = {
    400: "The request is wrong.",
    401: "The token is missing or wrong.",
    403: "The token has not the scope, is of another person, or another site asks.",
}
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


class Search(views.Query):
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


class Whose(views.Query):
    """The person who is asked for."""

    user: str | None = Field(default=None, max_length=_LONGEST, description="The token's own, if not given.")


class Wanted(views.Filter, Whose):
    """Which items are recommended, and to whom."""


class Similar(Whose):
    """An item, and how many similar ones."""

    item: str = Field(max_length=_LONGEST, description="Id, id elsewhere (tmdb:603) or title.")
    count: int = Field(default=10, ge=1, le=views.MOST, description="How many items.")


class Entry(Frozen):
    """An item of the history."""

    item: Item
    time: int | None = Field(description="Seconds since 1970, when it was first met.")


class History(Frozen):
    """The items that count, oldest first."""

    interactions: list[Entry]


def described() -> dict[str, Any]:
    """The whole description in OpenAPI."""
    return rest(None, None).openapi()


def rest(worker: Worker | None, access: Access | None) -> FastAPI:
    """The app that answers under /api/. Without a worker it can only be described."""
    refusals: dict[int | str, dict[str, Any]] = {
        status: {"model": Refusal, "description": text} for status, text in _REFUSED.items()
    }
    app = FastAPI(
        title="Solera device",
        version="1",
        description="Recommendations of a device. `solera device token FOLDER --create NAME` makes a token.",
        license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
        openapi_url="/api/openapi.json",
        generate_unique_id_function=lambda route: route.name,
        docs_url=None,
        redoc_url=None,
        exception_handlers={SoleraError: failed, RefusedError: failed, RequestValidationError: _invalid},
        responses=refusals,
    )

    def caller(*scopes: str) -> Any:
        async def checked(request: Request) -> Caller:
            assert access
            found = await access.known(request)
            found.needs(*scopes)
            return found

        return Security(checked, scopes=list(scopes))

    async def run(job: Callable[[Device], Kind]) -> Kind:
        assert worker
        return await worker.run(job)

    reader, adder, either = caller(READ), caller(ADD), caller(READ, ADD)
    bearer = [Depends(HTTPBearer(auto_error=False))]  # for the description

    @app.get(RECOMMENDATIONS, dependencies=bearer)
    async def recommend(asked: Annotated[Wanted, Query()], by: Annotated[Caller, reader]) -> Recommendations:
        """Recommendations from a person's history. Needs the scope read."""
        user = by.of(asked.user)
        return await run(lambda device: _recommended(device, user, asked))

    @app.get(SIMILAR, dependencies=bearer)
    async def similar(asked: Annotated[Similar, Query()], by: Annotated[Caller, reader]) -> Items:
        """Items that the model connects with one. Needs the scope read."""
        user = by.of(asked.user)

        def job(device: Device) -> Items:
            found = device.similar(asked.item, asked.count, user=user)
            return Items(items=[_item(each) for each in found])

        return await run(job)

    @app.get(ITEMS, dependencies=bearer)
    async def search(asked: Annotated[Search, Query()], by: Annotated[Caller, either]) -> Items:
        """Items of the catalogue by a part of their title. Needs the scope read or add."""
        found = await run(lambda device: views.search(device, asked.search))
        return Items(items=[_item(each) for each in found])

    @app.get(f"{ITEMS}/{{id}}", dependencies=bearer)
    async def find(id: str, by: Annotated[Caller, either]) -> Item:  # noqa: A002 - as it is called in the path
        """An item by its id, here or elsewhere (tmdb:603). Needs the scope read or add."""
        return _item(await run(lambda device: device.catalogue.find(id)))

    @app.get(INTERACTIONS, dependencies=bearer)
    async def history(asked: Annotated[Whose, Query()], by: Annotated[Caller, reader]) -> History:
        """What counts in a person's history. Needs the scope read."""
        user = by.of(asked.user)

        def job(device: Device) -> History:
            times = device.times(user).items()
            return History(interactions=[Entry(item=_item(views.item(device, i)), time=t) for i, t in times])

        return await run(job)

    @app.post(INTERACTIONS, dependencies=bearer)
    async def add(
        asked: Annotated[Whose, Query()], given: Interactions, by: Annotated[Caller, adder]
    ) -> Added:
        """Add interactions to a person's history, in one step. Needs the scope add."""
        user = by.of(asked.user)
        return await run(lambda device: _added(device, user, given.interactions))

    app.openapi = partial(_without_422, app)  # type: ignore[method-assign]
    return app


def _without_422(app: FastAPI) -> dict[str, Any]:
    """The description without the answer that FastAPI would give to a wrong request: here it is 400."""
    found = FastAPI.openapi(app)
    for verbs in found["paths"].values():
        for operation in verbs.values():
            operation["responses"].pop("422", None)
    for name in ("HTTPValidationError", "ValidationError"):
        found["components"]["schemas"].pop(name, None)
    return found


async def _invalid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"][1:])) or "the request"
    return refused(400, f"{where}: {first['msg']}", "see /api/openapi.json")


def _recommended(device: Device, user: str, wanted: views.Filter) -> Recommendations:
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


def _added(device: Device, user: str, given: list[Interaction]) -> Added:
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
