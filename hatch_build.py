"""Put `catalogue.json` into a wheel, so that `solera methods` lists what there is without loading torch.

The package itself says what there is. Where it cannot be imported, as in a build in isolation, the wheel goes
without, and the first command that needs the catalogue writes it into the user's cache.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

WRITE = "import json, sys; from solera.cli.catalogue import made; json.dump(made(), sys.stdout)"


class CatalogueHook(BuildHookInterface[Any]):
    """Adds the file to the wheel; an editable install has a cache instead."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Make the file, beside the source and not in it."""
        if version == "editable":
            return
        nothing_added = {"SOLERA_IMPORT": "", "SOLERA_METHODS": ""}
        environment = {**os.environ, **nothing_added, "PYTHONPATH": str(Path(self.root) / "src")}
        done = subprocess.run(
            [sys.executable, "-c", WRITE], env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            self.app.display_warning(f"no catalogue.json: {done.stderr.strip().splitlines()[-1]}")
            return
        self._folder = tempfile.TemporaryDirectory()
        file = Path(self._folder.name) / "catalogue.json"
        file.write_text(done.stdout, encoding="utf-8")
        build_data["force_include"][str(file)] = "solera/catalogue.json"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the file once the wheel has it."""
        if folder := getattr(self, "_folder", None):
            folder.cleanup()
