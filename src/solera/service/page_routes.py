"""What the page asks of the service. Only the owner may, who has opened the page by its link."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from solera.core.errors import ConfigError, DeviceError
from solera.core.frozen import Frozen
from solera.core.text import clean_text
from solera.device.choices import Choices
from solera.device.device import Device
from solera.device.folder import UPLOADS
from solera.device.history import as_csv
from solera.device.ledger import Ledger
from solera.device.policy import Policy
from solera.device.tokens import PAGE
from solera.service import views
from solera.service.access import OWNER, Access, body, query
from solera.service.imports import Imports, Job, Order, save
from solera.service.worker import Worker


class NewEntry(Frozen):
    """An item for the history."""

    item: str
    time: int | None = None
    liked: bool = True


class Correction(Frozen):
    """An entry as it should be."""

    item: str
    time: int | None
    counts: bool


class Choice(Frozen):
    """Whether an item is hidden or disliked; what is not said stays."""

    item: str
    hidden: bool | None = None
    disliked: bool | None = None


class Standing(Frozen):
    """What the owner decides about a federation."""

    federation: str
    standing: Literal["joined", "paused", "left"]


class Match(Frozen):
    """A title of an import, and the item that is meant."""

    title: str
    year: int | None
    item: str


class Matches(Frozen):
    """All titles that the owner has matched."""

    matches: list[Match] = Field(max_length=1_000)


class Names(Frozen):
    """Names of users."""

    names: list[str] = Field(max_length=20)


class Count(Frozen):
    """How many items are asked for."""

    item: str = ""
    count: int = Field(default=8, ge=1, le=views.MOST)


class PageRoutes:
    """The paths under /page/."""

    def __init__(self, worker: Worker, imports: Imports) -> None:
        self._worker, self._imports = worker, imports

    def routes(self, access: Access) -> list[Route]:
        """All paths: of one's own data, and of the device for the owner. No GET changes anything."""
        paths = [
            ("GET", "about", self.about),
            ("GET", "history", self.history),
            ("GET", "history.csv", self.export),
            ("POST", "entries", self.add),
            ("PUT", "entries/{number:int}", self.correct),
            ("DELETE", "entries/{number:int}", self.remove),
            ("DELETE", "everything", self.forget),
            ("POST", "imports", self.import_),
            ("GET", "imports/{number:int}", self.progress),
            ("POST", "imports/{number:int}/matches", self.match),
            ("GET", "items", self.search),
            ("GET", "recommendations", self.recommend),
            ("GET", "similar", self.similar),
            ("GET", "choices", self.choices),
            ("PUT", "choices", self.choose),
            ("DELETE", "list", self.clear_list),
        ]
        of_device = [
            ("GET", "left", self.left),
            ("PUT", "federation", self.decide),
            ("PUT", "policy", self.set_policy),
            ("POST", "model", self.update),
            ("POST", "model/back", self.go_back),
        ]
        return access.of_owner(paths, PAGE) + access.of_owner(of_device)

    async def _json(self, job: Callable[[Device], Any]) -> JSONResponse:
        return JSONResponse(await self._worker.run(job))

    def _import(self, request: Request) -> Job:
        """The import that is asked for, if it is the caller's to see."""
        job = self._imports.find(_number(request))
        request.state.caller.of(job.user)
        return job

    async def about(self, request: Request) -> Response:
        """The device and its model."""
        owns = OWNER in request.state.caller.scopes
        return await self._json(lambda device: views.about(device, request.state.user, alone=not owns))

    async def history(self, request: Request) -> Response:
        """Entries, oldest first."""
        text = request.query_params.get("search", "")
        user = request.state.user
        return await self._json(lambda device: [e._asdict() for e in device.entries.entries(user, text)])

    async def export(self, request: Request) -> Response:
        """The whole history as CSV."""
        user = request.state.user
        text = await self._worker.run(lambda device: as_csv(device.entries.entries(user)))
        return PlainTextResponse(text, media_type="text/csv")

    async def add(self, request: Request) -> Response:
        """Add an item to the history."""
        new, user = await body(request, NewEntry), request.state.user
        rows = [(new.item, new.time, new.liked)]
        return await self._json(lambda device: {"added": device.add_all(rows, user, "by hand") > 0})

    async def correct(self, request: Request) -> Response:
        """Change an entry."""
        new, number, user = await body(request, Correction), _number(request), request.state.user

        def job(device: Device) -> Any:
            if new.item not in device.catalogue.number and not device.holds(new.item):
                raise DeviceError(f"no item {new.item!r} in the catalogue", "choose one that is in it")
            history = device.entries
            return history.correct(user, number, item=new.item, time=new.time, liked=new.counts)._asdict()

        return await self._json(job)

    async def remove(self, request: Request) -> Response:
        """Delete an entry, and overwrite it on disk."""
        number, user = _number(request), request.state.user
        return await self._json(lambda device: {"removed": len(device.entries.remove(user, [number]))})

    async def forget(self, request: Request) -> Response:
        """Delete everything about the user or another person, and what was uploaded."""
        return JSONResponse({"forgotten": await self._imports.forget(_person(request))})

    async def import_(self, request: Request) -> Response:
        """Begin to import the file in the body."""
        given = request.query_params
        try:
            columns = json.loads(given.get("columns") or "{}")
            like_from = float(given["like_from"]) if given.get("like_from") else None
            if not all(isinstance(text, str) for pair in columns.items() for text in pair):
                raise ValueError
        except (ValueError, AttributeError, RecursionError):
            raise ConfigError("columns or like_from cannot be read", "choose them again") from None
        order = Order(given.get("name", ""), columns, like_from, given.get("as_list") == "yes")
        job = await self._imports.begin(request, order, _person(request))
        return JSONResponse(job.as_json(), 202)

    async def progress(self, request: Request) -> Response:
        """How far an import has come, and its report at the end."""
        return JSONResponse(self._import(request).as_json())

    async def match(self, request: Request) -> Response:
        """Take titles of an import as those of items, now and in later imports."""
        job, given = self._import(request), await body(request, Matches)
        chosen = {(each.title, each.year): each.item for each in given.matches}
        return JSONResponse({"added": await self._imports.accept(job, chosen)})

    async def search(self, request: Request) -> Response:
        """Items of the catalogue by a part of their title."""
        text = request.query_params.get("search", "")[:200]
        return await self._json(lambda device: [each._asdict() for each in views.search(device, text)])

    async def recommend(self, request: Request) -> Response:
        """Recommendations with their items and reasons."""
        wanted, user = query(request, views.PageFilter), request.state.user
        try:
            along = Names.model_validate_json(f'{{"names": {wanted.along}}}').names
        except ValidationError:
            raise ConfigError("along: not a list of names", "reload the page") from None
        for name in along:
            request.state.caller.of(name)

        def job(device: Device) -> Any:
            return views.shown(device, user, views.recommendations(device, user, wanted, along))

        return await self._json(job)

    async def similar(self, request: Request) -> Response:
        """Items that the model connects with one."""
        id_, user = request.query_params.get("item", ""), request.state.user
        count = query(request, Count).count
        return await self._json(lambda device: [i._asdict() for i in device.similar(id_, count, user=user)])

    async def choices(self, request: Request) -> Response:
        """The hidden and the disliked items."""
        user = request.state.user

        def job(device: Device) -> Any:
            choices = Choices(device.store, user)
            kinds = {"hidden": choices.hidden(), "disliked": choices.disliked()}
            return {kind: [views.item(device, id_)._asdict() for id_ in ids] for kind, ids in kinds.items()}

        return await self._json(job)

    async def choose(self, request: Request) -> Response:
        """Hide or dislike an item, or take that back."""
        given, user = await body(request, Choice), request.state.user

        def job(device: Device) -> Any:
            choices = Choices(device.store, user)
            if given.hidden is not None:
                choices.hide(given.item, given.hidden)
            if given.disliked is not None:
                choices.dislike(given.item, given.disliked)
            return {}

        return await self._json(job)

    async def clear_list(self, request: Request) -> Response:
        """Delete the list of items to choose from."""
        await self._worker.run(lambda device: Choices(device.store, request.state.user).clear_listed())
        return JSONResponse({})

    async def left(self, request: Request) -> Response:
        """What has left the device, and what its owner allows."""
        return await self._json(views.left)

    async def decide(self, request: Request) -> Response:
        """Join, pause or leave a federation that has asked."""
        given = await body(request, Standing)

        def job(device: Device) -> Any:
            ledger = Ledger(device.store)
            if ledger.standing(given.federation) is None:
                raise DeviceError("no such federation has asked this device", "reload the page")
            change = {"joined": ledger.join, "paused": ledger.pause, "left": ledger.leave}
            change[given.standing](given.federation)
            return views.left(device)

        return await self._json(job)

    async def set_policy(self, request: Request) -> Response:
        """Change limits of the policy."""
        given = await request.body()

        def job(device: Device) -> Any:
            try:
                change = json.loads(given)
                changed = Policy.model_validate(Policy.read(device.store).model_dump() | change)
            except ValidationError as error:
                wrong = error.errors()[0]
                raise ConfigError(f"{wrong['loc'][0]}: {wrong['msg']}", "choose another limit") from None
            except (ValueError, TypeError, RecursionError):
                raise ConfigError("the limits cannot be read", "reload the page") from None
            changed.write(device.store)
            return views.left(device)

        return await self._json(job)

    async def update(self, request: Request) -> Response:
        """Install the bundle in the body, if the same publisher has signed it."""
        with tempfile.TemporaryDirectory(prefix=UPLOADS, dir=self._worker.folder) as place:
            path = Path(place) / "new.bundle"
            await save(request, path)
            await self._worker.run(lambda device: device.update(path))
        return await self.about(request)

    async def go_back(self, request: Request) -> Response:
        """Use the model before the last update."""
        await self._worker.run(lambda device: device.go_back())
        return await self.about(request)


def _person(request: Request) -> str:
    """Whose history is meant: for the owner, it may be that of somebody else in the household."""
    given: str = clean_text(request.query_params.get("person", "")).strip()[:60]
    return str(request.state.caller.of(given or None))


def _number(request: Request) -> int:
    return int(request.path_params["number"])
