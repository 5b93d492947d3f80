"""Make the pictures of docs/page.md: every screen of the page, light and dark, at two widths.

python tools/docs/make_screens.py

Needs Chromium, Node.js with `npm ci` done in web/, and Pillow. All films and people are invented.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs" / "images" / "page"
COLOURS = 32


def main() -> int:
    """Write docs/images/page/SCREEN-WIDTH-SCHEME.webp."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        example, taken = Path(scratch) / "example", Path(scratch) / "taken"
        subprocess.run([sys.executable, ROOT / "tools/page/make_example.py", example], check=True)
        subprocess.run(["node", "tests/screens.mjs", example, taken], cwd=ROOT / "web", check=True)
        for picture in sorted(taken.glob("*.png")):
            with Image.open(
                picture
            ) as opened:  # a screen has few colours: without loss, this is the smallest
                few = opened.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).convert("RGB")
            few.save(PICTURES / f"{picture.stem}.webp", lossless=True, quality=100, method=6)
    return 0


if __name__ == "__main__":
    sys.exit(main())
