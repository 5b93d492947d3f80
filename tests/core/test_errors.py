"""Errors of others that become errors with a next step."""

from __future__ import annotations

import errno
import sqlite3

import pytest

from solera.core.errors import full_disk


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_has_a_next_step(number):
    found = full_disk(OSError(number, "no room", "runs/a"))
    assert found.message == "the disk is full: runs/a cannot be written"
    assert "make room" in found.hint
    assert full_disk(OSError(number, "no room")).message == "the disk is full"


def test_a_full_database_has_a_next_step():
    connection = sqlite3.connect(":memory:")
    connection.execute("PRAGMA max_page_count = 2")
    with pytest.raises(sqlite3.OperationalError) as error:
        connection.executescript("CREATE TABLE a (b); CREATE TABLE c (d); CREATE TABLE e (f)")
    assert full_disk(error.value).message == "the disk is full"


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EACCES, "denied"),
        OSError("42 requested"),
        sqlite3.OperationalError("locked"),
        ValueError(),
    ],
)
def test_other_errors_are_not_of_a_full_disk(error):
    assert full_disk(error) is None
