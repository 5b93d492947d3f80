"""The root class of all errors a user can cause, each with a hint on what to do next."""

from __future__ import annotations

import errno
import re
from traceback import walk_tb
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError


class SoleraError(Exception):
    """An error the user can fix. The message says what is wrong and `hint` gives the next step.

    A hint names options of the command line, which prints both on two lines and exits with `exit_code`. In
    Python the error's text names arguments instead.
    """

    exit_code = 2

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({in_python(self.hint)})" if self.hint else self.message


class ConfigError(SoleraError):
    """A method, option or protocol that does not exist or does not fit."""


class DataError(SoleraError):
    """A data set that is missing, malformed or too small."""


class RunError(SoleraError):
    """A run folder that cannot be written, read or resumed."""


class BundleError(SoleraError):
    """A bundle that is damaged, forged or has another version."""


class DeviceError(SoleraError):
    """A device folder that cannot be written or read, or does not hold the requested data."""


class DeployError(SoleraError):
    """A server, a node or a key of a deployed federation that is missing, unreachable or refused."""


class DivergedError(SoleraError):
    """Training produced numbers that are not finite."""

    exit_code = 3


_EXTRAS = {  # by package that is missing
    **dict.fromkeys(("jinja2", "narwhals", "polars", "pooch", "tomli_w", "torch"), "train"),
    **dict.fromkeys(("alembic", "asyncpg", "cronsim", "prometheus_client", "segno", "sqlalchemy"), "server"),
    **dict.fromkeys(("filelock", "psutil", "stamina"), "node"),
    **dict.fromkeys(("httpx", "rbcl"), "reports"),
}
# Operators' commands, whose extra brings the others.
_OPERATORS = {"solera.cli.federation", "solera.cli.serve", "solera.cli.server"}


def missing_package(error: Exception) -> SoleraError | None:
    """An error with a next step, if what failed is the import of a package of an extra."""
    name = (getattr(error, "name", None) or "").partition(".")[0]
    if not isinstance(error, ModuleNotFoundError) or name not in _EXTRAS:
        return None
    askers = {frame.f_globals.get("__name__") for frame, _ in walk_tb(error.__traceback__)}
    extra = "server" if askers & _OPERATORS else _EXTRAS[name]
    return SoleraError(f"this needs {name}, which is not installed", f"pip install 'solera[{extra}]'")


def full_disk(error: Exception) -> SoleraError | None:
    """An error with a next step, if what failed is a write to a full disk, by Python or by SQLite."""
    number, name = getattr(error, "errno", None), getattr(error, "sqlite_errorname", None)
    if number not in (errno.ENOSPC, errno.EDQUOT) and name != "SQLITE_FULL":
        return None
    where = getattr(error, "filename", None)
    return SoleraError(
        "the disk is full" + (f": {where} cannot be written" if where else ""),
        "make room on the disk, then give the command again; an unfinished run continues with --resume",
    )


def closest(name: str, known: list[str]) -> str:
    """Suggest the known name closest to a misspelt one, or list all known names."""
    from difflib import get_close_matches  # noqa: PLC0415 - only ever needed on the way to an error

    near = get_close_matches(name, known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"


def wrong_options(error: ValidationError) -> str:
    """All wrong options of a validation, each with what is wrong; what concerns several has no name."""

    def said(what: str, message: str) -> str:
        return "no such option" if what == "extra_forbidden" else message.removeprefix("Value error, ")

    return "; ".join(
        "".join(f"{name}: " for name in wrong["loc"][:1]) + said(wrong["type"], wrong["msg"])
        for wrong in error.errors()
    )


def in_python(hint: str) -> str:
    """Rewrite a hint for Python: --min-interactions becomes min_interactions, -o reg=1 becomes reg=1."""
    hint = re.sub(r"(?<![\w-])--([a-z][a-z-]*)", lambda found: found[1].replace("-", "_"), hint)
    return re.sub(r"(?<![\w-])-([ok]) ", lambda found: "" if found[1] == "o" else "k=", hint)
