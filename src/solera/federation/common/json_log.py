"""Log records as JSON lines, for whoever collects logs. Lines of a round carry its id everywhere."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_ROUND: ContextVar[str] = ContextVar("round", default="")


def round_id(federation: str, number: int, attempt: int) -> str:
    """The id of one attempt at a round, counted from 1 as in history.jsonl."""
    return f"{federation[:8]}-{number + 1}.{attempt}"


def current_round() -> str:
    """The id of the round that this thread works on; empty between rounds."""
    return _ROUND.get()


@contextmanager
def in_round(id_: str) -> Iterator[None]:
    """Let all lines and events of the block carry a round's id."""
    token = _ROUND.set(id_)
    try:
        yield
    finally:
        _ROUND.reset(token)


class JsonLines(logging.Formatter):
    """One object a line: time, level, logger, message, `fields` given as extra, round id, traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line = {
            "time": round(record.created, 3),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if current_round():
            line["round_id"] = current_round()
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def log_as_json() -> None:
    """Let everything that this process logs be JSON lines on standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
