"""What may be stored: bounds and switches, checked when they are set."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ..errors import ConfigError

Grounding = Literal["off", "numbers", "words"]
Personal = Literal["reject", "allow"]

#: What changes by itself, whatever the documents say.
_CHANGING = {
    **dict.fromkeys(("weather", "forecast", "price", "prices", "exchange rate", "stock"), 300.0),
    **dict.fromkeys(("天气", "价格", "汇率", "股价"), 300.0),
}
_SWITCHES = ("require_documents", "injection", "quarantine", "allow_tool_calls")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionPolicy:
    """Which answers may be stored, for how long, and in which state.

    Args:
        ttl_s: Lifetime where the request names none.
        max_ttl_s: Longest lifetime, whatever the request asks for.
        ttl_jitter: Share by which a lifetime that nobody asked for varies, so that what was
            stored together does not expire together.
        time_bound_ttl_s: Longest lifetime of an answer about the present moment; 0: not stored.
        time_bound_words: Longest lifetime, in seconds, of an answer whose question holds a word:
            what changes by itself, such as weather or prices; 0: not stored.
        max_answer_chars: Longest answer stored.
        max_question_chars: Longest question stored.
        require_documents: Store nothing that was answered without documents. Off for plain
            chat without retrieval.
        injection: Refuse questions, documents and answers with instruction marks.
        grounding: "numbers": numbers, ids, addresses and links of the answer must occur in
            the documents or the question; "words": its words must, too; "off".
        min_overlap: Least share of the answer's content words found in the documents, with
            `grounding="words"`.
        personal: "reject" stores answers with personal data only for their own principal.
        quarantine: Shared entries are served to their writer only, until promoted.
        allow_tool_calls: Store answers that call tools (they may have side effects).
        max_temperature: Highest sampling temperature whose answers are stored.

    Raises:
        ConfigError: A value is of the wrong type or out of its range.
    """

    ttl_s: float = 86_400.0
    max_ttl_s: float = 7 * 86_400.0
    ttl_jitter: float = 0.1
    time_bound_ttl_s: float = 300.0
    time_bound_words: Mapping[str, float] = field(default_factory=lambda: dict(_CHANGING))
    max_answer_chars: int = 64_000
    max_question_chars: int = 4_000
    require_documents: bool = True
    injection: bool = True
    grounding: Grounding = "numbers"
    min_overlap: float = 0.5
    personal: Personal = "reject"
    quarantine: bool = True
    allow_tool_calls: bool = False
    max_temperature: float = 2.0

    def __post_init__(self) -> None:
        for name in ("ttl_s", "max_ttl_s"):
            _check_number(name, getattr(self, name), least=1e-3)
        for name in ("time_bound_ttl_s", "ttl_jitter", "max_temperature", "min_overlap"):
            _check_number(name, getattr(self, name), least=0.0)
        if self.ttl_jitter >= 1:
            raise ConfigError(f"ttl_jitter must be below 1, not {self.ttl_jitter!r}")
        _check_words(self.time_bound_words)
        for name in ("max_answer_chars", "max_question_chars"):
            _check_number(name, getattr(self, name), least=1)
        for name in _SWITCHES:
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(f"{name} must be true or false, not {getattr(self, name)!r}")
        if self.grounding not in ("off", "numbers", "words"):
            raise ConfigError(f"grounding must be off, numbers or words, not {self.grounding!r}")
        if self.personal not in ("reject", "allow"):
            raise ConfigError(f"personal must be reject or allow, not {self.personal!r}")


def _check_words(words: Any) -> None:
    if not isinstance(words, Mapping) or not all(isinstance(w, str) and w.strip() for w in words):
        raise ConfigError(f"time_bound_words must map words to seconds, not {words!r}")
    for word, ttl_s in words.items():
        _check_number(f"time_bound_words[{word!r}]", ttl_s, least=0.0)


def _check_number(name: str, value: Any, *, least: float) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ConfigError(f"{name} must be a number, not {value!r}")
    if not math.isfinite(value) or value < least:
        raise ConfigError(f"{name} must be finite and at least {least:g}, not {value!r}")
