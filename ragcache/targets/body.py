"""From a call to the body of a Chat Completions request: each provider gets what it takes.

A hint to a cache is never needed for the answer, and a strict server refuses a field that it does
not know: what the asked provider does not take is left out, at every depth, whoever put it there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from ..errors import RequestError
from ..layout import CacheRules, Host, for_host, marked
from ..layout.roles import adapted
from ..providers import find_rules
from ..types import Call, JsonObject, Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """What a provider takes beyond the common fields.

    Args:
        fields: Of the body.
        marks: Of a message, a content part or a tool.
        developer: It knows the role `developer`.
    """

    fields: frozenset[str] = frozenset()
    marks: frozenset[str] = frozenset()
    developer: bool = False


#: By provider. Sources: the providers' own pages, named in `ragcache/providers/*.toml`; vLLM 0.32,
#: entrypoints/openai/chat_completion/protocol.py. "anthropic" stands for its models behind a proxy
#: that speaks Chat Completions and hands marks on.
DIALECTS: Final[Mapping[str, Dialect]] = {
    "openai": Dialect(
        fields=frozenset({"prompt_cache_key", "prompt_cache_retention", "prompt_cache_options"}),
        marks=frozenset({"prompt_cache_breakpoint"}),
        developer=True,
    ),
    "mistral": Dialect(fields=frozenset({"prompt_cache_key"})),
    "vllm": Dialect(fields=frozenset({"cache_salt"}), developer=True),
    "qwen": Dialect(marks=frozenset({"cache_control"})),
    "anthropic": Dialect(marks=frozenset({"cache_control"})),
}
PLAIN: Final = Dialect()

_FIELDS: Final = frozenset(
    {"cache_salt", "prompt_cache_key", "prompt_cache_retention", "prompt_cache_options"}
)
_MARKS: Final = frozenset({"cache_control", "cachePoint", "cache_point", "prompt_cache_breakpoint"})
#: Of the client's or of ragcache's own making: never taken from a caller.
_OURS: Final = frozenset({"model", "messages", "tools", "stream", "stream_options", "request_id"})
#: Where a request goes and what it is sent with come from the settings.
_SETTINGS: Final = frozenset(
    {"base_url", "api_key", "extra_headers", "extra_query", "default_headers", "headers"}
)
#: Options of the client that a caller may set for one call.
_OPTIONS: Final = frozenset({"timeout"})


def arguments(call: Call, provider: str, *, host: Host = "any") -> dict[str, Any]:
    """Return the arguments of the client's `create`; the call is left as it is.

    Args:
        call: What is asked.
        provider: Whose server it is.
        host: The roles that the model's chat template accepts.

    Raises:
        RequestError: A parameter would change where the request goes or its headers.
    """
    dialect = DIALECTS.get(provider, PLAIN)
    rules = find_rules(provider, call.model)
    if rules is not None and rules.mark not in dialect.marks:
        rules = None
    messages, tools = _laid(call, rules, host, developer=dialect.developer)
    made: dict[str, Any] = {
        "model": call.model,
        "messages": [_without(message.wire(), dialect.marks) for message in messages],
    }
    if tools:
        made["tools"] = [_plain_tool(tool, dialect.marks) for tool in tools]
    made |= {name: call.params[name] for name in _OPTIONS if call.params.get(name) is not None}
    extra = _extra(call, dialect, rules)
    if extra:
        made["extra_body"] = extra
    return made


def _laid(
    call: Call, rules: CacheRules | None, host: Host, *, developer: bool
) -> tuple[Sequence[Message], Sequence[JsonObject]]:
    """Return messages and tools in the roles of the host, in parts and marked where that helps."""
    if call.layout is None:
        return adapted(call.messages, host, developer=developer)[0], call.tools
    layout = for_host(
        replace(call.layout, messages=call.messages, tools=call.tools), host, developer=developer
    )
    if rules is None or not rules.marked:
        return layout.messages, layout.tools
    return marked(layout, call.breakpoints, rules)


def _extra(call: Call, dialect: Dialect, rules: CacheRules | None) -> dict[str, Any]:
    """Return the further fields of the body: the caller's, and ours over them."""
    given = {**call.params, **_mapping(call.params.get("extra_body"))}
    _refuse(given, _SETTINGS & given.keys())
    known = {
        name: value
        for name, value in given.items()
        if name not in _OURS | _OPTIONS | (_FIELDS - dialect.fields) | {"extra_body"}
    }
    if rules is not None and rules.implicit and "prompt_cache_options" in dialect.fields:
        # Our plan decides what is worth a write; the provider's own mark would be billed too.
        known.setdefault("prompt_cache_options", {"mode": "explicit"})
    if call.prompt_cache_key and "prompt_cache_key" in dialect.fields:
        known.setdefault("prompt_cache_key", call.prompt_cache_key)
    # Over whatever the caller put there: the salt keeps tenants apart.
    known.pop("cache_salt", None)
    if call.cache_salt and "cache_salt" in dialect.fields:
        known["cache_salt"] = call.cache_salt
    return known


def _refuse(given: Mapping[str, Any], names: Iterable[str]) -> None:
    for name in sorted(names):
        raise RequestError(
            f"{name!r} cannot be set by a request (it has {type(given[name]).__name__}): a "
            "target's address and headers come from its settings, api.base_url and api.headers"
        )


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _without(body: dict[str, Any], taken: frozenset[str]) -> dict[str, Any]:
    """Return a message without the marks that are not taken, its content parts included."""
    content = body.get("content")
    kept = {name: value for name, value in body.items() if name not in _MARKS - taken}
    if isinstance(content, list):
        kept["content"] = [_plain(part, taken) for part in content]
    return kept


def _plain(part: Mapping[str, Any], taken: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in part.items() if name not in _MARKS - taken}


def _plain_tool(tool: JsonObject, taken: frozenset[str]) -> dict[str, Any]:
    """Return a tool without marks that are not taken; a schema property of such a name stays."""
    plain = _plain(tool, taken)
    if isinstance(plain.get("function"), Mapping):
        plain["function"] = _plain(plain["function"], taken)
    return plain
