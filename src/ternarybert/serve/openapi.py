"""The OpenAPI document, made from the routes and their schemas."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from ternarybert import __version__
from ternarybert.serve import schemas
from ternarybert.serve.routes import ROUTES

_FAILURES = {
    "400": "The body is not JSON, or there are no texts",
    "401": "The API key is missing or wrong",
    "404": "There is no model of this name",
    "408": "The body did not arrive in time",
    "413": "The body, a text or the number of texts is too large",
    "415": "The body is not application/json",
    "422": "The request has another form, or a text cannot be tokenized",
    "424": "The model cannot do this",
    "429": "Overloaded; try again after Retry-After seconds",
    "503": "There was no answer in time",
}
_RETRY = ("429", "503")
_RETRY_AFTER = {"Retry-After": {"description": "Seconds to wait", "schema": {"type": "integer"}}}
_KEYS = {
    "key": {"type": "http", "scheme": "bearer"},
    "header": {"type": "apiKey", "in": "header", "name": "x-api-key"},
    "password": {"type": "http", "scheme": "basic"},
}
_GETS: dict[str, tuple[str, str, Any]] = {
    "/": ("The page", "text/html", {"type": "string"}),
    "/health": ("Whether the server works; the only route that needs no key", "text/plain", {"type": "string"}),
    "/info": ("The model and the limits", "application/json", schemas.InfoReply),
    "/metrics": ("Metrics for Prometheus", "text/plain", {"type": "string"}),
    "/openapi.json": ("This document", "application/json", {"type": "object"}),
    "/v1/models": ("All models", "application/json", schemas.ModelsReply),
    "/v1/models/{name}": ("One model", "application/json", schemas.ModelReply),
}


def openapi_document() -> dict[str, Any]:
    """The whole document."""
    gets = [kind for _, _, kind in _GETS.values() if not isinstance(kind, dict)]
    kinds = [*(r.body for r in ROUTES), *(kind for r in ROUTES for kind in r.replies), *gets]
    kinds += [schemas.ErrorReply, schemas.OpenAIErrorReply]
    made, components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    made, components = map(_without_none, (made, components))
    schema_of = {str(kind): schema for kind, schema in zip(kinds, made, strict=True)}
    paths: dict[str, Any] = {}
    for route in ROUTES:
        replies = [schema_of[str(kind)] for kind in route.replies]
        reply = replies[0] if len(replies) == 1 else {"anyOf": replies}
        paths[route.path] = {"post": _operation(route.path, route.summary, reply, body=schema_of[str(route.body)])}
    paths["/"] = {"post": _operation("/", "The route that fits the model", {}, body={"type": "object"})}
    for path, (summary, media, kind) in _GETS.items():
        schema = kind if isinstance(kind, dict) else schema_of[str(kind)]
        paths.setdefault(path, {})["get"] = _operation(path, summary, schema, media=media)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "ternarybert",
            "version": __version__,
            "description": "Packed models over HTTP. Every path also exists below /models/NAME, for that model.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": _KEYS},
        "security": [{}, *({name: []} for name in _KEYS)],
    }


def _operation(
    path: str, summary: str, reply: Any, *, body: Any = None, media: str = "application/json"
) -> dict[str, Any]:
    error = "OpenAIErrorReply" if path.startswith("/v") else "ErrorReply"
    failed = {"application/json": {"schema": {"$ref": f"#/components/schemas/{error}"}}}
    codes = _FAILURES if body is not None else {code: _FAILURES[code] for code in ("401", "404")}
    if path == "/health":
        codes = {"503": "The server does not work"}
    identity = re.sub(r"\W+", "_", path).rstrip("_")
    operation: dict[str, Any] = {
        "summary": summary,
        "operationId": ("get" if body is None else "post") + identity,
        "responses": {
            "200": {"description": summary, "content": {media: {"schema": reply}}},
            **{
                code: {"description": text, "content": failed} | ({"headers": _RETRY_AFTER} if code in _RETRY else {})
                for code, text in codes.items()
            },
        },
    }
    if body is not None:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    if "{name}" in path:
        operation["parameters"] = [{"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}]
    return operation


def _without_none(schema: Any) -> Any:
    """Leave out what an annotation has set to None to take its place."""
    if isinstance(schema, dict):
        return {key: _without_none(value) for key, value in schema.items() if value is not None or key == "default"}
    return [_without_none(one) for one in schema] if isinstance(schema, (list, tuple)) else schema
