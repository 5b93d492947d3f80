"""Who asks: the owner, who opened the page by its link, or a program with a token; and what is asked."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, TypeVar

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from solera.core.errors import ConfigError, SoleraError
from solera.core.frozen import Frozen
from solera.device.tokens import SCOPES, Tokens, digest
from solera.service.guard import RefusedError, refused
from solera.service.worker import Worker

OWNER = "owner"
Endpoint = Callable[[Request], Awaitable[Response]]
_BEARER = "bearer "


class Caller(NamedTuple):
    """Whose data somebody may use, and how."""

    user: str
    scopes: tuple[str, ...]

    def needs(self, *scopes: str) -> None:
        """Refuse a caller who has none of the scopes."""
        if not set(scopes) & set(self.scopes):
            needed = " or ".join(scopes)
            raise RefusedError(refused(403, f"the token has not the scope {needed}", "use another token"))

    def of(self, user: str | None) -> str:
        """The user who is asked for: the caller's own, or for the owner anybody of the household."""
        if user not in {None, self.user} and OWNER not in self.scopes:
            raise RefusedError(refused(403, f"the token is not of user {user!r}", "use another token"))
        return user or self.user


class Access:
    """Checks the token of every request for data."""

    def __init__(self, worker: Worker, secret: str, user: str) -> None:
        """`secret` is that of the link, which gives the owner access to everything of `user`."""
        self._worker, self._digest, self._user = worker, digest(secret), user

    async def caller(self, request: Request) -> Caller | None:
        """Who asks; None without a valid token."""
        given = request.headers.get("authorization", "")
        if given[: len(_BEARER)].lower() != _BEARER:
            return None
        secret = given[len(_BEARER) :].strip()
        if hmac.compare_digest(digest(secret), self._digest):
            return Caller(self._user, (OWNER, *SCOPES))
        found = await self._worker.run(lambda device: Tokens(device.store).find(secret))
        return found and Caller(found.user, found.scopes)

    async def known(self, request: Request) -> Caller:
        """Who asks, or a refusal."""
        caller = await self.caller(request)
        if caller is None:
            hint = "open the link of solera device open, or send a token of solera device token"
            answer = refused(401, "the token is missing or wrong", hint)
            answer.headers["WWW-Authenticate"] = "Bearer"
            raise RefusedError(answer)
        return caller

    def of_owner(self, paths: Sequence[tuple[str, str, Endpoint]], *others: str) -> list[Route]:
        """Paths under /page/, with their verbs, for the owner and those who have one of the other scopes."""
        owner = self.needs(OWNER, *others)
        return [Route(f"/page/{path}", owner(endpoint), methods=[verb]) for verb, path, endpoint in paths]

    def needs(self, *scopes: str) -> Callable[[Endpoint], Endpoint]:
        """Let only callers through who have one of the scopes; `request.state.user` says whose data."""

        def wrap(endpoint: Endpoint) -> Endpoint:
            async def checked(request: Request) -> Response:
                caller = await self.known(request)
                caller.needs(*scopes)
                request.state.user, request.state.caller = caller.user, caller
                return await endpoint(request)

            return checked

        return wrap


async def failed(_: Request, error: Exception) -> Response:
    """An error that the user can fix, as JSON."""
    if isinstance(error, RefusedError):
        return error.answer
    assert isinstance(error, SoleraError)
    return refused(400, error.message, error.hint)


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
