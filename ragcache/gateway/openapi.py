"""The OpenAPI document of the gateway, made of the bodies that it checks."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from pydantic.json_schema import models_json_schema

from .. import __version__
from .bodies import ChatBody, PromptBody

_REF: Final = "#/components/schemas/{model}"
_ERRORS: Final = {
    "400": "The body cannot be used; the message says what and where.",
    "401": "The credential is missing, or not known.",
    "403": "The credential names no tenant.",
    "404": "The model is not offered.",
    "408": "The body did not come in time.",
    "413": "The body is too large.",
    "415": "The body is packed.",
    "429": "Too many requests of this tenant are under way; Retry-After says when to ask again.",
    "500": "The gateway failed.",
    "502": "The upstream cannot be reached, or gave no answer that can be read.",
    "503": "The server is full, or starting.",
    "504": "No answer in time; or only-if-cached, and nothing may be served.",
}


@cache
def document() -> dict[str, Any]:
    """Return the document."""
    _, schemas = models_json_schema(
        [(ChatBody, "validation"), (PromptBody, "validation")], ref_template=_REF
    )
    components = {
        "schemas": {**schemas["$defs"], "Error": _error_schema()},
        "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "ragcache gateway", "version": __version__},
        "security": [{"bearer": []}],
        "paths": {
            "/v1/chat/completions": {"post": _asking("ChatBody", "Answer a chat.")},
            "/v1/completions": {"post": _asking("PromptBody", "Continue a prompt.")},
            "/v1/models": {"get": _getting("List the models.", "401")},
            "/v1/models/{model}": {"get": _one_model()},
            "/healthz": {"get": _open("Whether the process lives.")},
            "/readyz": {"get": _open("Whether requests are answered.", "503")},
        },
        "components": components,
    }


def _asking(body: str, summary: str) -> dict[str, Any]:
    reference = {"$ref": _REF.format(model=body)}
    answered = _answer("The answer, whole or as server-sent events.")
    # One event: readers of a stream see its lines as fields.
    event = {"type": "object", "properties": {"data": {"type": "string"}}, "required": ["data"]}
    answered["content"]["text/event-stream"] = {"schema": event}
    answered["headers"] = {"Cache-Status": {"schema": {"type": "string"}}}
    return {
        "summary": summary,
        "parameters": [_cache_control()],
        "requestBody": {"required": True, "content": {"application/json": {"schema": reference}}},
        "responses": {"200": answered, **{status: _fault(status) for status in _ERRORS}},
    }


def _cache_control() -> dict[str, Any]:
    return {
        "name": "Cache-Control",
        "in": "header",
        "description": "no-store, no-cache, only-if-cached, max-age (RFC 9111)",
        "schema": {"type": "string"},
    }


def _getting(summary: str, *errors: str) -> dict[str, Any]:
    faults = {status: _fault(status) for status in errors}
    return {"summary": summary, "responses": {"200": _answer("What was asked for."), **faults}}


def _open(summary: str, *errors: str) -> dict[str, Any]:
    answers = {status: _answer(_ERRORS[status]) for status in errors}
    return {"summary": summary, "security": [], "responses": {"200": _answer("Yes."), **answers}}


def _one_model() -> dict[str, Any]:
    name = {"name": "model", "in": "path", "required": True, "schema": {"type": "string"}}
    return {**_getting("Show a model.", "401", "404"), "parameters": [name]}


def _answer(description: str) -> dict[str, Any]:
    schema = {"type": "object"}
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _fault(status: str) -> dict[str, Any]:
    schema = {"$ref": _REF.format(model="Error")}
    return {
        "description": _ERRORS[status],
        "content": {"application/json": {"schema": schema}},
    }


def _error_schema() -> dict[str, Any]:
    error = {
        "type": "object",
        "required": ["message"],
        "properties": {"message": {"type": "string"}, "type": {}, "param": {}, "code": {}},
    }
    return {"type": "object", "required": ["error"], "properties": {"error": error}}
