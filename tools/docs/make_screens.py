"""Make the pictures of the guides for people: the screens that they show, light and dark, at two widths.

python tools/docs/make_screens.py

Needs Chromium, Node.js with `npm ci` done in web/, the data sets, and Pillow. All films are invented.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs" / "images"
PROGRAMS = {"page": "tests/screens.mjs", "service": "tests/service_screens.mjs"}
JOINING = (sys.executable, "-m", "pytest", "-q", "-m", "slow", "tests/deploy/test_take_part_real.py")
COLOURS = 32


def main() -> int:
    """Write docs/images/page/SCREEN-WIDTH-SCHEME.webp, and those of the service beside it."""
    shown = "".join(page.read_text("utf-8") for page in (ROOT / "docs/guides").glob("*.md"))
    with tempfile.TemporaryDirectory() as scratch:
        example = Path(scratch) / "example"
        subprocess.run([sys.executable, ROOT / "tools/page/make_example.py", example], check=True)
        for name, program in PROGRAMS.items():
            taken, pictures = Path(scratch) / name, PICTURES / name
            pictures.mkdir(parents=True, exist_ok=True)
            taken.mkdir()
            subprocess.run(["node", program, example, taken], cwd=ROOT / "web", check=True)
            if name == "service":
                taking = os.environ | {"SOLERA_PICTURES": str(taken)}
                subprocess.run(JOINING, cwd=ROOT, check=True, env=taking)
            for picture in sorted(taken.glob("*.png")):
                if f"images/{name}/{picture.stem}.webp" in shown:
                    compress(picture, pictures / f"{picture.stem}.webp")
    return 0


def compress(picture: Path, output: Path) -> None:
    """Write a picture with few colours: of a screen, this is the smallest without loss."""
    with Image.open(picture) as opened:
        few = opened.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).convert("RGB")
    few.save(output, lossless=True, quality=100, method=6)


if __name__ == "__main__":
    sys.exit(main())
