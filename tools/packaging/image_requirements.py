"""Write the packages of the images with their hashes, from uv.lock: packaging/*requirements.txt.

    python tools/packaging/image_requirements.py

PyTorch is not among them. The image of servers and nodes has its CPU build, which is not on PyPI and so not
in the lock, and needs none of the CUDA packages. The image of a device has no extras, and so no torch.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILES = {
    ROOT / "packaging" / "requirements.txt": ("server",),
    ROOT / "packaging" / "device-requirements.txt": (),
}
_HEADER = "# Made from uv.lock by tools/packaging/image_requirements.py.\n"
_LEFT_OUT = r'^name = "(torch|triton|(?:cuda|nvidia)-[\w-]+)"$'


def requirements(extras: tuple[str, ...]) -> str:
    """The content of the file of an image with these extras."""
    lock = (ROOT / "uv.lock").read_text(encoding="utf-8")
    command = ["uv", "export", "--frozen", "--quiet", "--no-header", "--no-annotate", "--no-emit-project"]
    command += [word for extra in extras for word in ("--extra", extra)]
    command += [word for name in re.findall(_LEFT_OUT, lock, re.M) for word in ("--no-emit-package", name)]
    return _HEADER + subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout


if __name__ == "__main__":
    for file, extras in FILES.items():
        file.write_text(requirements(extras), encoding="utf-8")
