"""The token by which a server recognizes commands of its operator.

FOLDER/flower/control.token is made anew at every start of the server, and only its user can read it. Flower's
own commands look into credentials.yaml beside it, which has the same token in the form that they know.
"""

from __future__ import annotations

import base64
import json
import secrets
from pathlib import Path

from solera.core.errors import DeployError
from solera.core.files import PRIVATE, write_atomically
from solera.deploy.common.private_files import private_folder

TOKEN = "control.token"
_FLOWERS_OWN = "credentials.yaml"


def write_token(home: Path, server: str, *, new: bool) -> None:
    """Write the token of a server that is about to start; a former one is kept unless it shall be new."""
    private_folder(home)
    if new or not (home / TOKEN).exists():
        write_atomically(home / TOKEN, secrets.token_hex(32), PRIVATE)
    token = read_token(home)
    kept = {"authn-type": "oidc", "oidc-access-token": token, "oidc-refresh-token": token}
    known = {
        f"flower.account-auth.{server}.{name}": base64.b64encode(value.encode()).decode()
        for name, value in kept.items()
    }
    write_atomically(home / _FLOWERS_OWN, json.dumps(known, indent=2), PRIVATE)  # which is YAML, too


def read_token(home: Path) -> str:
    """The token of the running server."""
    path = home / TOKEN
    try:
        return path.read_text(encoding="ascii")
    except PermissionError:
        raise DeployError(
            f"{path} can be read only by the user who runs the server", "run this command as that user"
        ) from None
    except OSError:
        raise DeployError(
            f"{path} is missing: the server was not started by this version of Solera",
            f"solera server start {home.parent} --keys DIR",
        ) from None
