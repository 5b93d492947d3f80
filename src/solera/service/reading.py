"""Read what a request says, and refuse what it should not say."""

from __future__ import annotations

from typing import TypeVar

from pydantic import ValidationError
from starlette.requests import Request

from solera.core.errors import ConfigError
from solera.core.frozen import Frozen

Kind = TypeVar("Kind", bound=Frozen)


async def body(request: Request, kind: type[Kind]) -> Kind:
    """The body of a request, checked."""
    content = await request.body()
    try:
        return kind.model_validate_json(content)
    except ValidationError as error:
        raise _wrong(error) from None


def query(request: Request, kind: type[Kind]) -> Kind:
    """The query of a request, checked; empty values are left out."""
    given = {name: value for name, value in request.query_params.items() if value}
    try:
        return kind.model_validate(given)
    except ValidationError as error:
        raise _wrong(error) from None


def _wrong(error: ValidationError) -> ConfigError:
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"])) or "the request"
    return ConfigError(f"{where}: {first['msg']}", "see /api/openapi.json")
