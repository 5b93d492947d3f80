"""A saved model over HTTP: recommendations and similar items, with OpenAPI at /docs.

The folder is usually a link, `models/current`. When it points elsewhere, the new model is read beside the old
one and takes its place; requests never wait for that and never see half a model.
"""

from __future__ import annotations

import logging
import multiprocessing.connection
import signal
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import torch
import uvicorn
from fastapi import FastAPI, HTTPException, Query, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from solera.core.errors import DataError, RunError, SoleraError
from solera.estimators import Model, load_model
from solera.runs import Recommendation

_LOG = logging.getLogger(__name__)
HowMany = Annotated[int, Query(ge=1, le=1000)]
LOOKS = 2.0  # seconds between two looks at the link


class Item(BaseModel):
    """A recommended item."""

    rank: int
    item: str
    title: str
    score: float


class Found(BaseModel):
    """The best items, and whether they are only the most popular ones."""

    items: list[Item]
    fallback: bool = Field(description="Too little is known of this user: these are the most popular items.")


class Asked(BaseModel):
    """A history, oldest first, of a user who need not be known."""

    history: list[str] = Field(description="Ids of items, oldest first; unknown ones are skipped.")
    k: int = Field(default=10, ge=1, le=1000)
    only: list[str] | None = None
    without: list[str] = []


class About(BaseModel):
    """The model that answers."""

    model: str
    folder: str
    loaded: datetime
    users: int
    items: int
    interactions: int


class Served:
    """The model in a folder, read again when the folder or its link changes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._stop = threading.Event()
        self._read()

    def _read(self) -> None:
        place = self.folder.resolve()
        model = load_model(place)
        model.recommend(model.data.user_map.id(0), 1)  # what is prepared once is prepared now
        self.current: tuple[Model, Path, datetime] = model, place, datetime.now(UTC)

    def watch(self) -> None:
        """Look at the link until `close`."""
        while not self._stop.wait(LOOKS):
            if self.folder.resolve() == self.current[1]:
                continue
            try:
                self._read()
                _LOG.warning("serving %s", self.current[1])
            except SoleraError as error:
                _LOG.error("%s; still serving %s", error, self.current[1])
                time.sleep(LOOKS)

    def close(self) -> None:
        """Stop watching."""
        self._stop.set()


def answer(folder: Path, listening: socket.socket) -> None:
    """Answer requests until SIGINT or SIGTERM: one worker of `solera serve`."""
    config = uvicorn.Config(app_of(folder), log_level="warning", access_log=False)
    uvicorn.Server(config).run(sockets=[listening])


def answer_together(folder: Path, listening: socket.socket, workers: int) -> None:
    """Answer requests by several processes until SIGINT or SIGTERM, or until one of them ends."""
    started = [
        multiprocessing.get_context("spawn").Process(target=_worker, args=(folder, listening), daemon=True)
        for _ in range(workers)
    ]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        for each in started:
            each.start()
        multiprocessing.connection.wait([each.sentinel for each in started])
    finally:
        for each in started:
            if each.pid:
                each.terminate()
                each.join()
    raise RunError("a process that answers has ended", "see above for the reason")


def _worker(folder: Path, listening: socket.socket) -> None:
    try:
        answer(folder, listening)
    except SoleraError as error:
        sys.exit(str(error))


def app_of(folder: Path) -> FastAPI:
    """The application that serves the model in `folder`."""
    torch.set_num_threads(1)  # a request is small; several are answered at a time
    served = Served(folder)

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        threading.Thread(target=served.watch, daemon=True).start()
        yield
        served.close()

    app = FastAPI(title="Solera", summary="Recommendations from a saved model.", lifespan=life)

    @app.exception_handler(DataError)
    def wrong(request: Request, error: DataError) -> JSONResponse:
        return JSONResponse({"detail": str(error), "next": error.hint}, 404)

    @app.get("/recommendations")
    def recommendations(
        user: str,
        k: HowMany = 10,
        only: Annotated[list[str] | None, Query()] = None,
        without: Annotated[list[str] | None, Query()] = None,
    ) -> Found:
        """The best items for a user of the table, without those the user has."""
        model = served.current[0]
        found = model.recommender.recommend(user, k, only=only, without=without or ())
        return Found(items=_items(found), fallback=bool(model.recommender.has_fallback([user])[0]))

    @app.post("/recommendations")
    def for_history(asked: Asked) -> Found:
        """The best items for a history."""
        model = served.current[0]
        found = model.recommender.recommend_for(
            asked.history, asked.k, only=asked.only, without=asked.without
        )
        known = any(item in model.data.item_map for item in asked.history)
        return Found(items=_items(found), fallback=not known)

    @app.get("/similar/{item}")
    def similar(item: str, k: HowMany = 10) -> list[Item]:
        """The items most similar to one."""
        try:
            return _items(served.current[0].recommender.similar(item, k))
        except DataError:
            raise
        except SoleraError as error:
            raise HTTPException(409, str(error)) from None

    @app.get("/model")
    def about() -> About:
        """The model that answers."""
        model, place, loaded = served.current
        data = model.data
        return About(
            model=repr(model).partition(" fitted")[0],
            folder=str(place),
            loaded=loaded,
            users=data.n_users,
            items=data.n_items,
            interactions=len(data),
        )

    return app


def _items(found: list[Recommendation]) -> list[Item]:
    return [Item(**each._asdict()) for each in found]
