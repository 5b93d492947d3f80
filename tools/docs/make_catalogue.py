"""Writes src/solera/catalogue.json: methods and presets that the command line lists without loading torch.

python tools/docs/make_catalogue.py            write it
python tools/docs/make_catalogue.py --check    change nothing; exit 1 if it is stale
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from solera.cli.catalogue import made


def main(arguments: Sequence[str], root: Path) -> int:
    """Rewrite or check the file under `root`."""
    path = root / "src" / "solera" / "catalogue.json"
    text = json.dumps(made(), indent=1, ensure_ascii=False) + "\n"
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return 0
    if "--check" in arguments:
        sys.stdout.write("stale: src/solera/catalogue.json\n")
        return 1
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path(__file__).parents[2]))
