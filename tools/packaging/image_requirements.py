"""Write packaging/requirements.txt: the packages of the image with their hashes, from uv.lock.

    python tools/packaging/image_requirements.py

PyTorch is not among them. The image has its CPU build, which is not on PyPI and so not in the lock, and needs
none of the CUDA packages.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILE = ROOT / "packaging" / "requirements.txt"
_HEADER = "# Made from uv.lock by tools/packaging/image_requirements.py.\n"
_LEFT_OUT = r'^name = "(torch|triton|(?:cuda|nvidia)-[\w-]+)"$'


def requirements() -> str:
    """The content of the file."""
    lock = (ROOT / "uv.lock").read_text(encoding="utf-8")
    command = ["uv", "export", "--frozen", "--quiet", "--no-header", "--no-annotate", "--no-emit-project"]
    command += ["--extra", "deploy", "--extra", "postgres"]
    command += [word for name in re.findall(_LEFT_OUT, lock, re.M) for word in ("--no-emit-package", name)]
    return _HEADER + subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout


if __name__ == "__main__":
    FILE.write_text(requirements(), encoding="utf-8")
