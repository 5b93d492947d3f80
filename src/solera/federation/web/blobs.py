"""What many devices are sent, as immutable files named by their SHA-256: any web server can hand them out."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Set
from contextlib import suppress
from pathlib import Path

from solera.core.files import write_atomically
from solera.federation.common.address import home_of
from solera.federation.common.private_files import private_folder

NAME = re.compile("[0-9a-f]{64}")
_KEPT = 3600.0  # seconds that a file stays after nothing names it any more


class Blobs:
    """FOLDER/network/blobs."""

    def __init__(self, folder: Path) -> None:
        self.path = private_folder(home_of(folder) / "blobs")

    def put(self, content: bytes) -> str:
        """Keep a content; returns its name."""
        name = hashlib.sha256(content).hexdigest()
        path = self.path / name
        if path.exists():
            path.touch()
        else:
            write_atomically(path, content, mode=0o644)  # the folder is closed; nginx may be let into it
        return name

    def prune(self, used: Set[str]) -> None:
        """Delete what nothing has named for a while."""
        before = time.time() - _KEPT
        for path in self.path.iterdir():
            with suppress(FileNotFoundError):
                if path.name not in used and path.stat().st_mtime < before:
                    path.unlink()
