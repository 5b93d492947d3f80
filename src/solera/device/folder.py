"""The files of a device's folder: the database, the bundle under its digest, and what is being imported."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

from solera.core.errors import BundleError, DeviceError
from solera.core.files import PRIVATE, replacing_file
from solera.device.bundle import Bundle

DATABASE = "device.db"
CERTIFICATE = f"{DATABASE}-tls.pem"  # of the service in the home's network: certificate, then key
UPLOADS = f"{DATABASE}-import-"  # how folders of uploaded files begin
_PIECE = 1 << 20


def make_folder(path: Path) -> None:
    """A folder for a new device; what an interrupted start has left may be there, and nothing else."""
    if path.exists() and (not path.is_dir() or any(not _own(each) for each in path.iterdir())):
        raise DeviceError(f"{path} is not empty and contains no device", "give a new folder")
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise DeviceError(f"{path} cannot be created: {error.strerror}", "give another folder") from None
    make_private(path)


def make_private(path: Path) -> None:
    """Keep others out of a folder that was there before, and out of files that an older version made."""
    for each, mode in ((path, 0o700), *((file, 0o600) for file in path.iterdir() if _own(file))):
        with suppress(OSError):  # a file may be gone by now, and some file systems know no rights
            if each.stat().st_mode & 0o077:
                each.chmod(mode)


def bundle_file(folder: Path, digest: str) -> Path:
    """Path of a bundle in the folder."""
    return folder / f"{digest}.bundle"


def install(bundle: Bundle, folder: Path) -> None:
    """Copy a bundle into the folder atomically, and check the copy completely."""
    from solera.device.models.opened import open_model  # noqa: PLC0415 - numpy, which a history does not need

    try:
        for left in folder.glob(".*.partial"):  # by an installation that was interrupted
            left.unlink()
        with replacing_file(bundle_file(folder, bundle.digest), PRIVATE) as partial:
            shutil.copyfile(bundle.path, partial)
            copied = Bundle.open(partial, bundle.key)
            if copied.digest != bundle.digest:
                raise BundleError(f"{bundle.path} changed while it was read", "run the command again")
            copied.catalogue()
            open_model(copied)
    except OSError as error:
        message = f"{bundle.path} cannot be copied to {folder}: {error.strerror}"
        raise DeviceError(message, "make room on the disk, then run the command again") from None


def erase_uploads(folder: Path) -> None:
    """Overwrite and delete all uploaded files, also those that a killed service has left."""
    for place in folder.glob(f"{UPLOADS}*"):
        try:
            for path in place.iterdir():
                _erase(path)
            place.rmdir()
        except FileNotFoundError:  # another program deletes it, too
            pass
        except OSError as error:
            message = f"{error.filename} cannot be deleted: {error.strerror}"
            raise DeviceError(message, "check its rights, then try again") from None


def _erase(path: Path) -> None:
    with path.open("r+b") as file:
        for start in range(0, size := path.stat().st_size, _PIECE):
            file.write(bytes(min(_PIECE, size - start)))
        file.flush()
        os.fsync(file.fileno())
    path.unlink()


def _own(path: Path) -> bool:
    return path.name.startswith(DATABASE) or path.suffix in (".bundle", ".partial")
