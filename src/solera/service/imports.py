"""Imports of uploaded files: each is streamed to the device's folder, then read in a thread of its own."""

from __future__ import annotations

import asyncio
import itertools
import re
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.requests import Request

from solera.core.errors import DeviceError, SoleraError
from solera.device.bundle import Item
from solera.device.device import Device
from solera.device.folder import UPLOADS, erase_uploads
from solera.device.importers import Report, Unmatched, format_of, import_file
from solera.service.worker import Worker

Matches = Mapping[tuple[str, int | None], str]  # ids of items by title and year
_UNUSUAL = re.compile(r"[^\w. -]+")
_NAME = 100  # characters of a file's name


@dataclass(frozen=True)
class Order:
    """What is imported, and how."""

    file: str
    columns: Mapping[str, str] = field(default_factory=dict)
    like_from: float | None = None
    as_list: bool = False


@dataclass
class Job:
    """An import, and how far it has come."""

    number: int
    order: Order
    path: Path
    user: str
    entries: int = 0
    report: Report | None = None
    error: SoleraError | None = None

    def as_json(self) -> dict[str, Any]:
        """The job for the page."""
        state = "failed" if self.error else "done" if self.report else "reading"
        error = self.error and {"error": self._shown(self.error.message), "next": self.error.hint}
        found: dict[str, Any] = {"number": self.number, "state": state, "entries": self.entries}
        return found | {"error": error, "report": self.report and _as_json(self.report, self.order)}

    def _shown(self, message: str) -> str:
        return message.replace(f"{self.path.parent}/", "")


class Imports:
    """One import at a time. Its file stays until the next one, for titles that are matched by hand."""

    def __init__(self, worker: Worker) -> None:
        self._worker, self._folder = worker, worker.folder
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="import")
        self._numbers = itertools.count(1)
        self._job: Job | None = None
        self._busy = False
        self._deleting = asyncio.Lock()
        erase_uploads(self._folder)

    async def begin(self, request: Request, order: Order, user: str) -> Job:
        """Store the body of a request, and begin to import it."""
        if self._busy:
            raise DeviceError("another import is under way", "wait until it ends")
        self._busy = True
        try:
            async with self._deleting:
                await self._worker.settled()  # what was asked for before, such as a deletion, comes first
            await asyncio.to_thread(erase_uploads, self._folder)
            place = Path(tempfile.mkdtemp(prefix=UPLOADS, dir=self._folder))
            name = _UNUSUAL.sub("_", Path(order.file).name)[-_NAME:].lstrip(". ") or "file"
            await save(request, place / name)
            self._job = Job(next(self._numbers), order, place / name, user)
        except BaseException:
            self._busy = False
            erase_uploads(self._folder)
            raise
        asyncio.get_running_loop().run_in_executor(self._pool, self._run, self._job, {})
        return self._job

    def find(self, number: int) -> Job:
        """The import with a number."""
        if self._job is None or self._job.number != number or not self._job.path.exists():
            raise DeviceError(f"there is no import {number}", "import the file again")
        return self._job

    async def accept(self, job: Job, chosen: Matches) -> int:
        """Import a file again with titles taken as those of items; return how many entries are new."""
        if self._busy or not job.path.exists():
            raise DeviceError("the file is not there any more", "import it again")
        self._busy = True
        await asyncio.get_running_loop().run_in_executor(self._pool, self._run, job, chosen)
        if job.error:
            raise job.error
        return job.report.added if job.report else 0

    async def forget(self, user: str) -> int:
        """Delete everything about the user and the last import; return how many entries it was."""
        async with self._deleting:
            await asyncio.to_thread(erase_uploads, self._folder)  # without its file, an import under way ends
            await asyncio.get_running_loop().run_in_executor(self._pool, int)
            self._job = None
            return await self._worker.run(lambda device: device.forget(user=user))

    def _run(self, job: Job, chosen: Matches) -> None:
        """In a thread of its own, with its own connection to the database."""
        try:
            device = Device.open(self._folder)
            try:
                job.report = self._import(device, job, chosen)
            finally:
                device.close()
        except SoleraError as error:
            job.error = error
        except Exception:
            job.error = DeviceError("the import failed", "the terminal of solera device open shows why")
            raise
        finally:
            self._busy = False

    def _import(self, device: Device, job: Job, chosen: Matches) -> Report:
        def progress(entries: int) -> None:
            if not job.path.exists():
                raise DeviceError("the file was deleted during its import", "import it again")
            job.entries = entries

        number, items = device.catalogue.number, device.catalogue.items
        meant = {key: items[number[item]] for key, item in chosen.items() if item in number}

        def accept(unmatched: list[Unmatched]) -> dict[tuple[str, int | None], Item]:
            keys = ((each.title, each.year) for each in unmatched)
            return {key: meant[key] for key in keys if key in meant}

        return import_file(
            device,
            format_of(job.path),
            job.path,
            job.order.columns,
            job.user,
            like_from=job.order.like_from,
            accept=accept,
            as_list=job.order.as_list,
            progress=progress,
        )

    def close(self) -> None:
        """Wait for the import under way, and delete its file."""
        self._pool.shutdown()
        erase_uploads(self._folder)


async def save(request: Request, path: Path) -> None:
    """Write the body of a request to a new file, piece by piece."""
    with path.open("xb") as file:
        async for piece in request.stream():
            file.write(piece)


def _as_json(report: Report, order: Order) -> dict[str, Any]:
    unmatched = [
        {"title": title, "year": year, "times": times, "near": [item._asdict() for item in near]}
        for title, year, times, near in report.unmatched
    ]
    plain = report._asdict() | {"known": report.known, "unknown": report.unknown, "file": order.file}
    return plain | {"unmatched": unmatched}
