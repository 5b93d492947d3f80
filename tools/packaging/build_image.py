"""Build packaging/Containerfile, or device.Containerfile, where no image registry is reachable.

    python tools/packaging/build_image.py --tag solera
    python tools/packaging/build_image.py --device --tag solera-device

Makes a base image of Debian's packages with mmdebstrap, and builds the file on it with buildah. In the build,
pip has the settings of this machine's pip: they are mounted, and are no part of the image. A base that exists
is used again; `buildah rmi localhost/solera-base:bookworm-amd64` removes it. Needs root, and for another
architecture qemu-user-static, binfmt and arch-test.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from configparser import RawConfigParser
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = "ca-certificates,passwd,python3,python3-venv"  # what the usual base has, and the files use
PROCESSES = 4096  # of a container


def environment(folder: Path) -> dict[str, str]:
    """Variables for buildah and podman on machines that are containers themselves, with settings in a folder.

    A container gets limits that this process may give: raising one needs a capability. crun refuses a machine
    with both versions of cgroups, so runc is taken where it is installed.
    """
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    limits = f'default_ulimits = ["nofile={files}:{files}", "nproc={PROCESSES}:{PROCESSES}"]'
    runtime = 'runtime = "runc"' if shutil.which("runc") else ""
    settings = folder / "containers.conf"
    settings.write_text(f"[containers]\n{limits}\n[engine]\n{runtime}\n", encoding="utf-8")
    return {**os.environ, "CONTAINERS_CONF": str(settings)}


def run(*command: object, env: dict[str, str] | None = None) -> str:
    """Run a program; what it says on stderr is seen, and what it prints is returned."""
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, text=True, check=True, env=env)
    return done.stdout.strip()


def make_base(name: str, suite: str, arch: str) -> None:
    """Make an image of a small Debian with Python, unless there is one of that name."""
    if run("buildah", "images", "--quiet", "--filter", f"reference={name}"):
        return
    with tempfile.TemporaryDirectory() as folder:
        tar = Path(folder) / "base.tar"
        wanted = ("--variant=minbase", f"--include={PACKAGES}", f"--architectures={arch}")
        run("mmdebstrap", "--quiet", *wanted, suite, tar)
        container = run("buildah", "from", f"--arch={arch}", "scratch")
        try:
            run("buildah", "add", "--quiet", container, tar, "/")
            run("buildah", "commit", "--quiet", container, name)
        finally:
            run("buildah", "rm", container)


def pip_settings() -> dict[str, str]:
    """Settings of pip on this machine, from its files and from variables, which come last and win."""
    lines = run(sys.executable, "-m", "pip", "config", "list").splitlines()
    found = [re.fullmatch(r"(?:global|:env:)\.([\w-]+)='(.*)'", line) for line in lines]
    settings = {each[1]: each[2] for each in found if each}
    variables = {each[1]: each[2] for each in found if each and each[0].startswith(":env:")}
    return settings | variables


def mounts(settings: dict[str, str]) -> list[str]:
    """Files and folders of this machine that the settings name, as volumes of a build."""
    words = {word.removeprefix("file://") for value in settings.values() for word in value.split()}
    paths = {Path(word) for word in words if word.startswith("/") and Path(word).exists()}
    # An index of files may name its files beside itself.
    folders = sorted({path.parent if path.name == "simple" else path for path in paths})
    return [f"--volume={path}:{path}:ro" for path in folders]


def build(tag: str, base: str, arch: str, file: str, *arguments: str) -> None:
    """Build a file of packaging/ on a base, with build arguments."""
    settings = pip_settings()
    with tempfile.TemporaryDirectory() as folder:
        secret = Path(folder) / "pip.conf"
        parser = RawConfigParser()
        parser["global"] = settings
        with secret.open("w", encoding="utf-8") as stream:
            parser.write(stream)
        run(
            *("buildah", "build", "--network=host", "--layers", "--quiet", *mounts(settings)),
            *(f"--secret=id=pip,src={secret}", f"--arch={arch}", "--pull=never"),
            *(f"--build-arg={each}" for each in (f"BASE={base}", *arguments)),
            *(f"--file={ROOT / 'packaging' / file}", f"--tag={tag}", ROOT),
            env=environment(Path(folder)),
        )


def main() -> None:
    """Make the base, then the image."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tag", default="solera")
    suite = platform.freedesktop_os_release().get("VERSION_CODENAME", "bookworm")
    parser.add_argument("--suite", default=suite, help="Debian's release; its Python must be 3.11 or later")
    parser.add_argument("--device", action="store_true", help="the small image of a person's device")
    here = run("dpkg", "--print-architecture")
    parser.add_argument("--arch", default=here, help="amd64 or arm64; default: this machine's")
    chosen = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("mmdebstrap and buildah need root here: use sudo.")
    base = f"localhost/solera-base:{chosen.suite}-{chosen.arch}"
    make_base(base, chosen.suite, chosen.arch)
    kind = ("device.Containerfile",) if chosen.device else ("Containerfile", "TORCH_INDEX=")
    build(chosen.tag, base, chosen.arch, *kind)
    print(run("buildah", "images", chosen.tag))


if __name__ == "__main__":
    main()
