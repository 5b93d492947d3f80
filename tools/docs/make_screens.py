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
KINDS = ("page", "service")
JOINING = (sys.executable, "-m", "pytest", "-q", "-m", "slow", "tests/federation/test_take_part_real.py")
QUALITY = 78


def main() -> int:
    """Write docs/images/page/SCREEN-WIDTH-SCHEME.webp, and those of a device's service beside it."""
    shown = "".join(page.read_text("utf-8") for page in (ROOT / "docs/guides").glob("*.md"))
    with tempfile.TemporaryDirectory() as scratch:
        example = Path(scratch) / "example"
        subprocess.run([sys.executable, ROOT / "tools/page/make_example.py", example], check=True)
        taken = Path(scratch) / "taken"
        subprocess.run(["node", "tests/screens.mjs", example, taken], cwd=ROOT / "web", check=True)
        taking = os.environ | {"SOLERA_PICTURES": str(taken / "service")}
        subprocess.run(JOINING, cwd=ROOT, check=True, env=taking)
        for kind in KINDS:
            (PICTURES / kind).mkdir(parents=True, exist_ok=True)
            for picture in sorted((taken / kind).glob("*.png")):
                if f"images/{kind}/{picture.stem}.webp" in shown:
                    compress(picture, PICTURES / kind / f"{picture.stem}.webp")
    return 0


def compress(picture: Path, output: Path) -> None:
    """Write a picture small: covers have soft colours, which is why it is not without loss."""
    with Image.open(picture) as opened:
        opened.convert("RGB").save(output, quality=QUALITY, method=6)


if __name__ == "__main__":
    sys.exit(main())
