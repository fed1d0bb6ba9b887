"""What may be stored: bounds and switches, checked when they are set."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ..errors import ConfigError
from ..lookup.policy import check_share

Grounding = Literal["off", "numbers", "words"]
Personal = Literal["reject", "allow"]

#: What changes by itself, whatever the documents say.
_CHANGING = {
    **dict.fromkeys(("weather", "forecast", "price", "prices", "exchange rate", "stock"), 300.0),
    **dict.fromkeys(("天气", "价格", "汇率", "股价"), 300.0),
}
_SWITCHES = (
    "require_documents",
    "injection",
    "canonical",
    "quarantine",
    "hubs",
    "allow_tool_calls",
)
#: Rates of writing: how many in a second in the long run, and how many at once.
_RATES = ("writes_per_s", "tenant_writes_per_s")
_BURSTS = ("writes_at_once", "tenant_writes_at_once")


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
        canonical: Refuse shared entries whose question holds more than a question, or was put to
            the model in other words than those that are stored.
        grounding: "numbers": numbers, ids, addresses and links of the answer must occur in
            the documents or the question; "words": its words must, too; "off".
        min_overlap: Least share of the answer's content words found in the documents, with
            `grounding="words"`.
        personal: "reject" stores answers with personal data only for their own principal.
        quarantine: Shared entries are served to their writer only, until promoted.
        quorum: So many principals' own answers must agree before one is served to everybody whom
            it is shared with; 0: an operator alone promotes.
        neighbourhood: Most shared entries of one principal near a question.
        neighbourhood_radius: From which similarity on a question is near.
        hubs: Refuse shared entries whose question is near too many unrelated ones.
        writes_per_s: Entries that a named principal may write in the long run, in each process.
        writes_at_once: So many in a burst.
        tenant_writes_per_s: The same for a tenant as a whole.
        tenant_writes_at_once: Likewise.
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
    canonical: bool = True
    grounding: Grounding = "numbers"
    min_overlap: float = 0.5
    personal: Personal = "reject"
    quarantine: bool = True
    quorum: int = 2
    neighbourhood: int = 16
    neighbourhood_radius: float = 0.95
    hubs: bool = True
    writes_per_s: float = 10.0
    writes_at_once: int = 1_000
    tenant_writes_per_s: float = 100.0
    tenant_writes_at_once: int = 10_000
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
        for name in ("max_answer_chars", "max_question_chars", "neighbourhood", *_BURSTS):
            _check_number(name, getattr(self, name), least=1)
        for name in _RATES:
            _check_number(name, getattr(self, name), least=1e-6)
        check_share("neighbourhood_radius", self.neighbourhood_radius)
        if isinstance(self.quorum, bool) or self.quorum not in (0, *range(2, 101)):
            raise ConfigError(
                f"quorum must be 0 (operators alone) or 2 to 100, not {self.quorum!r}"
            )
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
