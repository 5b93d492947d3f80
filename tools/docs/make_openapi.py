"""Write docs/reference/openapi.json, the description of the REST interface of a device's service.

python tools/docs/make_openapi.py            rewrite the file
python tools/docs/make_openapi.py --check    change nothing; exit 1 if the file is stale
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from solera.service.api import described

FILE = Path("docs/reference/openapi.json")


def main(arguments: Sequence[str], root: Path = Path(__file__).parents[2]) -> int:
    """Write the file, or compare it."""
    text = json.dumps(described(), indent=2, ensure_ascii=False) + "\n"
    file = root / FILE
    if "--check" not in arguments:
        file.write_text(text, encoding="utf-8")
    elif not file.exists() or file.read_text(encoding="utf-8") != text:
        print(f"stale: {FILE}; run python tools/docs/make_openapi.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
