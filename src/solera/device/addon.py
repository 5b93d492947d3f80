"""The add-on for Kodi as a zip, with the address of a device and a token for it."""

from __future__ import annotations

import zipfile
from html import escape
from importlib.resources import files
from pathlib import Path

from solera.core.errors import DeviceError
from solera.core.files import PRIVATE, replacing_file
from solera.device.device import Device
from solera.device.folder import CERTIFICATE
from solera.device.tokens import READ, Tokens

ID = "plugin.video.solera"
_FILES = ("addon.xml", "main.py", "resources/settings.xml")


def write_addon(device: Device, output: Path, url: str, user: str) -> None:
    """Write the zip, for its owner alone: whoever has it can ask for the user's recommendations."""
    if output.suffix != ".zip" or not output.parent.is_dir():
        raise DeviceError(f"{output} is not a zip in a folder that is there", "give another -o, FILE.zip")
    if not url.startswith(("http://", "https://")):
        raise DeviceError(f"{url!r} is not an address", "give one as http://127.0.0.1:8470")
    texts = {
        name: (files("solera.device") / "kodi_addon" / name).read_text(encoding="utf-8") for name in _FILES
    }
    secret = Tokens(device.store).create("kodi", [READ], user)
    settings = texts["resources/settings.xml"].replace("{{url}}", escape(url)).replace("{{token}}", secret)
    texts["resources/settings.xml"] = settings
    certificate = device.path / CERTIFICATE
    if certificate.exists():
        texts["resources/device.pem"] = certificate.read_text(encoding="ascii").partition(
            "-----BEGIN PRIVATE"
        )[0]
    try:
        with replacing_file(output, PRIVATE) as partial, zipfile.ZipFile(partial, "w") as archive:
            for name, text in texts.items():
                archive.writestr(f"{ID}/{name}", text)
    except OSError as error:
        raise DeviceError(f"{output} cannot be written: {error.strerror}", "give another -o") from None
