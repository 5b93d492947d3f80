"""A rate-limited log, so that strangers cannot fill the disk."""

from __future__ import annotations

import logging
import time

MOST = 120  # lines a minute about what went wrong


class Sparse(logging.Filter):
    """Lets the first lines of a minute through, and the first that says how many were left out."""

    def __init__(self) -> None:
        super().__init__()
        self._minute, self._lines = 0, 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a line is written; lines about what went well always are."""
        if record.levelno < logging.WARNING and not _is_refusal(record):
            return True
        minute = int(time.monotonic() // 60)
        if minute != self._minute:
            left_out, self._minute, self._lines = self._lines - MOST, minute, 0
            if left_out > 0:
                record.msg = f"{left_out} lines were left out; {record.msg}"
        self._lines += 1
        return self._lines <= MOST


def _is_refusal(record: logging.LogRecord) -> bool:
    """A line of the access log ends with the status."""
    status = record.args[-1] if isinstance(record.args, tuple) and record.args else None
    return record.name == "uvicorn.access" and isinstance(status, int) and status >= 400
