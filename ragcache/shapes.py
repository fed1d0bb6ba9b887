"""Two further shapes of settings that load as they are: a gateway's `config.toml` and a chain's
`settings.json`. Each key has a meaning here; what is missing takes its default.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from .errors import ConfigError

_Values = Mapping[str, Any]
#: Where a value goes: the names of the setting, and what is made of the value.
_Place = tuple[tuple[str, ...], Callable[[Any], Any]]


def _same(value: Any) -> Any:
    return value


def _ordering(enabled: Any) -> str:
    return "prefix_tree" if enabled else "retrieved"


def _marks(enabled: Any) -> str:
    return "planned" if enabled else "off"


#: `bge-m3` and the like: short for a name with its owner.
_SHORT_NAMES: Final = {"bge-m3": "BAAI/bge-m3"}


def _embedding_model(name: Any) -> Any:
    return _SHORT_NAMES.get(name, name) if isinstance(name, str) else name


_SERVER: Final[Mapping[str, Mapping[str, tuple[_Place, ...]]]] = {
    "server": {
        "host": ((("server", "host"), _same),),
        "port": ((("server", "port"), _same),),
        "upstream_base_url": ((("api", "base_url"), _same),),
    },
    "model": {
        "name": ((("model", "name"), _same),),
        "enable_prefix_caching": ((("engine", "args", "enable_prefix_caching"), _same),),
        "gpu_memory_utilization": ((("engine", "args", "gpu_memory_utilization"), _same),),
        "block_size": (
            (("engine", "args", "block_size"), _same),
            (("layout", "block_size"), _same),
        ),
        "max_model_len": (
            (("engine", "args", "max_model_len"), _same),
            (("layout", "window_tokens"), _same),
        ),
    },
    "cache": {
        "prefix_cache_enabled": (
            (("layout", "ordering"), _ordering),
            (("layout", "marks"), _marks),
        ),
        "semantic_cache_enabled": ((("semantic", "enabled"), _same),),
        "semantic_threshold": (
            (("lookup", "threshold"), _same),
            (("lookup", "uncertified_threshold"), _same),
        ),
        "semantic_ttl_seconds": ((("admission", "ttl_s"), _same),),
        "bad_hit_guard": ((("guard", "bad_hit_guard"), _same),),
    },
}

_CLIENT: Final[Mapping[str, Mapping[str, tuple[_Place, ...]]]] = {
    "api": {
        "base_url": ((("api", "base_url"), _same),),
        "api_key_env": ((("api", "api_key_env"), _same),),
        "timeout_seconds": ((("api", "timeout_s"), _same),),
    },
    "prompt_layout": {
        "stable_prefix": ((("prompt", "stable_prefix"), _same),),
        "semi_stable": ((("prompt", "semi_stable"), _same),),
        "variable_tail": ((("prompt", "variable_tail"), _same),),
    },
    "semantic_cache": {
        "enabled": ((("semantic", "enabled"), _same),),
        "embedding_model": ((("embedding", "model"), _embedding_model),),
        "threshold": (
            (("lookup", "threshold"), _same),
            (("lookup", "uncertified_threshold"), _same),
        ),
        "ttl_seconds": ((("admission", "ttl_s"), _same),),
        "store": ((("store", "kind"), _same),),
    },
    "observability": {
        name: ((("telemetry", name), _same),)
        for name in (
            "track_prefix_hit_rate",
            "track_semantic_hit_rate",
            "track_bad_hit_rate",
            "track_ttft_ms",
        )
    },
}
#: What a shape promises where its file is silent; the rest are ragcache's own defaults.
_SERVER_DEFAULTS: Final = {"semantic_threshold": 0.93, "semantic_ttl_seconds": 3600}
_CLIENT_DEFAULTS: Final = {"threshold": 0.93, "ttl_seconds": 3600, "embedding_model": "bge-m3"}


def translated(values: _Values) -> dict[str, Any]:
    """Return values of ragcache's own shape; those of another shape under ragcache's names.

    Raises:
        ConfigError: A key of another shape is unknown, or its stable prefix is not stable.
    """
    if "cache" in values or "upstream_base_url" in _section(values, "server"):
        return _switched(_made(values, _SERVER, {"cache": _SERVER_DEFAULTS}))
    if {"prompt_layout", "semantic_cache", "observability"} & values.keys():
        made = _switched(_made(values, _CLIENT, {"semantic_cache": _CLIENT_DEFAULTS}))
        refuse_unstable(made.get("prompt", {}).get("stable_prefix", ()))
        return made
    return dict(values)


def _switched(made: dict[str, Any]) -> dict[str, Any]:
    """Carry out the switches that have no setting of their own name here."""
    if made.pop("semantic", {}).get("enabled", True) is False:
        made.setdefault("embedding", {})["model"] = ""
    tracked = made.pop("telemetry", {})
    if tracked and not any(tracked.values()):
        made["telemetry"] = {"prometheus": False, "opentelemetry": False, "record": False}
    return made


def _section(values: _Values, name: str) -> _Values:
    found = values.get(name)
    return found if isinstance(found, Mapping) else {}


def _made(
    values: _Values,
    shape: Mapping[str, Mapping[str, tuple[_Place, ...]]],
    defaults: Mapping[str, _Values],
) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for section, value in values.items():
        if section not in shape:
            raise ConfigError(_unknown(section, shape))
        if not isinstance(value, Mapping):
            raise ConfigError(f"setting {section!r} must be a table, not {type(value).__name__}")
    for section, keys in shape.items():
        given = {**defaults.get(section, {}), **_section(values, section)}
        for key, value in given.items():
            if key not in keys:
                raise ConfigError(_unknown(f"{section}.{key}", [f"{section}.{k}" for k in keys]))
            for path, change in keys[key]:
                _set(made, path, change(value))
    return made


def _set(made: dict[str, Any], path: Sequence[str], value: Any) -> None:
    *sections, last = path
    for section in sections:
        made = made.setdefault(section, {})
    made[last] = value


def _unknown(name: str, known: Any) -> str:
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.0)
    return f"unknown setting {name!r}: did you mean {near[0]!r}?"


# --- what is not stable --------------------------------------------------------------------------

_MOMENT = r"(?:\d{4}-\d{2}-\d{2}|\d{1,2}[./]\d{1,2}[./]\d{2,4}|\d{1,2}:\d{2})"
_DYNAMIC: Final = {
    "a clock": re.compile(
        rf"\d{{4}}-\d{{2}}-\d{{2}}[T ]\d{{1,2}}:\d{{2}}|\b\d{{1,2}}:\d{{2}}:\d{{2}}\b"
        rf"|\b1[6-9]\d{{8}}(?:\d{{3}})?\b"
        rf"|\b(?:now|today|time|date|as of)\b[^.\n]{{0,20}}?{_MOMENT}",
        re.I,
    ),
    "a uuid": re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.I),
    "a seed": re.compile(r"\bseed\b[\"']?\s*[:=]?\s*\d+", re.I),
    "a template mark": re.compile(
        r"\{\{.*?\}\}|\{%.*?%\}|<%.*?%>|\$\{\w+\}|%\(\w+\)[sdr]|\{[A-Za-z_]\w*(?:![rsa])?(?::[^{}\"]*)?\}",
        re.S,
    ),
}
_POSITIONAL: Final = re.compile(r"\{\d*\}")


def refuse_unstable(texts: Sequence[Any]) -> None:
    """Refuse a stable prefix that changes from request to request.

    Raises:
        ConfigError: A text holds a clock, a uuid, a seed or a template mark.
    """
    for at, text in enumerate(texts):
        if not isinstance(text, str):
            raise ConfigError(f"prompt_layout.stable_prefix[{at}] must be a text")
        for kind, pattern in _DYNAMIC.items():
            if found := pattern.search(text):
                raise ConfigError(_moving(at, kind, found[0]))
        if not _is_json(text) and (found := _POSITIONAL.search(text)):
            raise ConfigError(_moving(at, "a template mark", found[0]))


def _moving(at: int, kind: str, found: str) -> str:
    return (
        f"prompt_layout.stable_prefix[{at}] holds {kind}, {found[:40]!r}: what varies per request "
        "belongs in the tail, else no prefix is ever reused"
    )


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
