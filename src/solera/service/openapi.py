"""The description of the REST interface in OpenAPI, made from the models that requests are checked with."""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import models_json_schema

from solera.core.types import Frozen
from solera.device.tokens import ADD, READ
from solera.service import api
from solera.service.views import Filter

_REF = "#/components/schemas/{model}"
_REFUSED = {
    "400": "The request is wrong.",
    "401": "The token is missing or wrong.",
    "403": "The token has not the scope, or another site asks.",
}


def described() -> dict[str, Any]:
    """The whole description."""
    answers = (api.Recommendations, api.Items, api.Interactions, api.Added, api.Refusal)
    _, schemas = models_json_schema([(each, "validation") for each in answers], ref_template=_REF)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Solera device",
            "version": "1",
            "description": "Recommendations of one device, on 127.0.0.1 only. `solera device open --port PORT"
            " --no-browser` starts the service, and `solera device token --create` makes a token.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "http://127.0.0.1:{port}", "variables": {"port": {"default": "8470"}}}],
        "paths": {
            api.RECOMMENDATIONS: {
                "get": _operation("recommend", READ, api.Recommendations, parameters=_parameters(Filter))
            },
            api.ITEMS: {
                "get": _operation("search", f"{READ} or {ADD}", api.Items, parameters=_parameters(api.Search))
            },
            api.INTERACTIONS: {
                "post": _operation(
                    "add",
                    ADD,
                    api.Added,
                    requestBody={"required": True, "content": _content(api.Interactions)},
                )
            },
        },
        "components": {
            "schemas": schemas["$defs"],
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _operation(name: str, scope: str, answer: type[Frozen], **rest: Any) -> dict[str, Any]:
    about = getattr(api.ApiRoutes, name).__doc__
    responses = {"200": {"description": answer.__doc__, "content": _content(answer)}}
    responses |= {
        status: {"description": text, "content": _content(api.Refusal)} for status, text in _REFUSED.items()
    }
    return {
        "operationId": name,
        "summary": about,
        "description": f"Needs the scope {scope}.",
        **rest,
        "responses": responses,
    }


def _parameters(query: type[Frozen]) -> list[dict[str, Any]]:
    schema = query.model_json_schema()
    return [
        {
            "name": name,
            "in": "query",
            "required": name in schema.get("required", []),
            "description": field.pop("description"),
            "schema": {key: value for key, value in field.items() if key != "title"},
        }
        for name, field in schema["properties"].items()
    ]


def _content(kind: type[Frozen]) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": _REF.format(model=kind.__name__)}}}
