"""Any Python value as plain data, for keys: what cannot be read is unlike everything else."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence, Set
from typing import Any

from pydantic import BaseModel, SecretBytes, SecretStr

#: Objects are told apart by their address, and addresses by their process.
_PROCESS = secrets.token_hex(8)


def plain(value: Any) -> Any:
    """Return plain data that is equal where the values are.

    A class with a schema becomes its schema, a secret nothing. An object of unknown make becomes
    a name that no other object has: that way it can cause a miss, never a wrong hit.
    """
    match value:
        case None | bool() | int() | float() | str() | bytes():
            return value
        case SecretStr() | SecretBytes():
            return "(secret)"
        case Mapping():
            return {str(k): plain(v) for k, v in value.items()}
        case BaseModel():
            return [_name(type(value)), {k: plain(v) for k, v in _fields(value).items()}]
        case type():
            return _class(value)
        case Set():
            return sorted((plain(v) for v in value), key=repr)
        case Sequence():
            return [plain(v) for v in value]
        case _:
            return f"{_name(type(value))}#{_PROCESS}#{id(value)}"


def _class(kind: type) -> Any:
    schema = getattr(kind, "model_json_schema", None)
    if schema is not None:
        return [_name(kind), plain(schema())]
    return [_name(kind), {k: repr(v) for k, v in getattr(kind, "__annotations__", {}).items()}]


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _fields(value: BaseModel) -> dict[str, Any]:
    return {name: getattr(value, name) for name in sorted(value.model_fields_set)}
