"""Whether an answer may be stored, in which state, and until when."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from ..keys import REMEMBERED_CHARS, content_hash, question_of
from ..lookup.lexicon import english
from ..lookup.words import words_of
from ..types import Admit, Citation, Completion, EntryState, Lineage, Reject, Request
from .canonical import beyond_the_question
from .marks import (
    carries_instruction,
    changing,
    has_instruction,
    of_the_moment,
    personal_data,
    speaks_of_self,
    speaks_to_one,
    unusable,
)
from .policy import AdmissionPolicy

_LABEL = re.compile(r"\[(\d{1,9})\]")
_FIGURE = re.compile(r"(?<![\w])[A-Za-z]*-?\d[\w.,:/-]*")
_FACT = re.compile(rf"[\w.+-]+@[\w-]+\.[\w.]+|https?://\S+|{_FIGURE.pattern}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answered:
    request: Request
    completion: Completion
    lineage: Sequence[Lineage]
    citations: Mapping[str, Citation]
    policy: AdmissionPolicy
    now: datetime

    @property
    def shared(self) -> bool:
        return self.request.sharing != "private"

    @property
    def documents(self) -> str:
        return "\n".join(document.text for document in self.request.documents)

    @property
    def cited(self) -> Sequence[str]:
        """The texts of the cited documents, of all where none is cited."""
        wanted = {part.content for part in self.lineage if part.cited}
        texts = [document.text for document in self.request.documents]
        return [text for text in texts if content_hash(text) in wanted] or texts


def decide(
    request: Request,
    completion: Completion,
    *,
    lineage: Sequence[Lineage],
    citations: Mapping[str, Citation],
    policy: AdmissionPolicy,
    now: datetime,
) -> Admit | Reject:
    """Return in which state and how long the answer may be stored, or which check refused it.

    Args:
        request: What was asked, with its documents and controls.
        completion: The whole answer; a stream cut short has no finish reason.
        lineage: The documents the answer came from, cited ones marked.
        citations: The labels that the prompt printed, mapped to documents.
        policy: What may be stored.
        now: The moment of the decision.
    """
    answered = _Answered(
        request=request,
        completion=completion,
        lineage=lineage,
        citations=citations,
        policy=policy,
        now=now,
    )
    for name, check in _CHECKS:
        detail = check(answered)
        if detail is not None:
            return Reject(check=name, detail=detail)
    ttl_s = lifetime_s(request, policy, now, answer=completion.text)
    if ttl_s <= 0:
        return Reject(check="ttl", detail="the answer would have expired already")
    state: EntryState = "quarantined" if answered.shared and policy.quarantine else "live"
    return Admit(state=state, ttl_s=ttl_s)


def lifetime_s(
    request: Request, policy: AdmissionPolicy, now: datetime, *, answer: str = ""
) -> float:
    """Return the lifetime: what the request asks for, within what the policy allows.

    What is said of the present moment, asked or answered, lives shortly, and so does what is
    asked about things that change by themselves.
    """
    wanted = request.ttl_s if request.ttl_s is not None else policy.ttl_s
    if request.expire_at is not None:
        wanted = min(wanted, (request.expire_at - now).total_seconds())
    if of_the_moment(question_of(request)) or of_the_moment(answer):
        wanted = min(wanted, policy.time_bound_ttl_s)
    wanted = min(wanted, *changing(question_of(request), policy.time_bound_words), math.inf)
    return min(wanted, policy.max_ttl_s)


def _no_store(a: _Answered) -> str | None:
    return "the request asks not to store" if a.request.no_store else None


def _finish(a: _Answered) -> str | None:
    reason = a.completion.finish_reason
    return None if reason == "stop" else f"ended with {reason or 'no finish reason'}"


def _tool_calls(a: _Answered) -> str | None:
    called = a.completion.tool_calls and not a.policy.allow_tool_calls
    return "the answer calls a tool" if called else None


def _refusal(a: _Answered) -> str | None:
    refused = a.completion.refusal or _unusable(a.completion.text) == "refusal"
    return "the model refused" if refused else None


def _error(a: _Answered) -> str | None:
    told = a.request.metadata.get("error")  # the caller's own word that its answer is a fallback
    failed = told or _unusable(a.completion.text) in ("error", "truncated")
    return "the text is an error message" if failed else None


def _empty(a: _Answered) -> str | None:
    called = bool(a.completion.tool_calls)
    return "no text" if _unusable(a.completion.text) == "empty" and not called else None


def _no_documents(a: _Answered) -> str | None:
    if a.policy.require_documents and not a.request.documents:
        return "answered without documents"
    if _unusable(a.completion.text) == "no_evidence":
        return "the answer says that nothing was found"
    return None


def _size(a: _Answered) -> str | None:
    if len(a.completion.text) > a.policy.max_answer_chars:
        return f"the answer is longer than {a.policy.max_answer_chars} characters"
    if len(question_of(a.request)) > a.policy.max_question_chars:
        return f"the question is longer than {a.policy.max_question_chars} characters"
    return None


def _blank_question(a: _Answered) -> str | None:
    return None if any(c.isalnum() for c in question_of(a.request)) else "the question is blank"


def _temperature(a: _Answered) -> str | None:
    heat = a.request.params.get("temperature")
    if isinstance(heat, (int, float)) and heat > a.policy.max_temperature:
        return f"sampled at temperature {heat}"
    return None


def _poison(a: _Answered) -> str | None:
    if not a.policy.injection:
        return None
    if has_instruction(question_of(a.request)):
        return "the question tells the model what to answer"
    if carries_instruction(a.completion.text):
        return "the answer carries an instruction to a model"
    if any(read(text).instructs for text in a.cited):
        return "a cited document carries an instruction to the model"
    return None


def _canonical(a: _Answered) -> str | None:
    if not a.shared or not a.policy.canonical:
        return None
    return beyond_the_question(a.request) or None


def _citation(a: _Answered) -> str | None:
    if not a.request.documents or a.request.formatted is not None:
        return None  # without documents, or with labels that somebody else printed
    unknown = sorted(set(_LABEL.findall(a.completion.text)) - set(a.citations))
    return f"the answer cites unknown labels {', '.join(unknown)}" if unknown else None


def _grounding(a: _Answered) -> str | None:
    if a.policy.grounding == "off" or not a.request.documents:
        return None
    answer = _LABEL.sub(" ", a.completion.text)
    known = facts(question_of(a.request)).union(*(read(text).facts for text in a.cited))
    loose = sorted(facts(answer) - known)
    if loose:
        return f"not in the cited documents: {', '.join(loose[:3])}"
    return _ungrounded_words(a, answer) if a.policy.grounding == "words" else None


def _ungrounded_words(a: _Answered, answer: str) -> str | None:
    said = {word for word in words_of(answer) if word.text not in english.FUNCTION}
    sources = (*a.cited, question_of(a.request))
    support = {word.stem for text in sources for word in words_of(text)}
    names = sorted({word.text for word in said if word.proper and word.stem not in support})
    if names:
        return f"names not in the cited documents: {', '.join(names[:3])}"
    found = sum(word.stem in support for word in said)
    if said and found < a.policy.min_overlap * len(said):
        return f"only {found} of {len(said)} words occur in the cited documents"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Read:
    """What a document says that an answer may rest on, and whether it instructs the model."""

    instructs: bool
    facts: frozenset[str]


def read(text: str) -> _Read:
    """Read a document, once."""
    return _known(text) if len(text) <= REMEMBERED_CHARS else _read(text)


def _read(text: str) -> _Read:
    return _Read(instructs=carries_instruction(text), facts=facts(text) | spelled_numbers(text))


_known = functools.lru_cache(maxsize=2048)(_read)
#: Several checks ask what is wrong with the same answer.
_unusable = functools.lru_cache(maxsize=32)(unusable)


def facts(text: str) -> frozenset[str]:
    """Return the numbers, ids, addresses and links of a text, in one spelling."""
    fact = _FACT if "@" in text or "://" in text else _FIGURE
    return frozenset(
        match.group().strip(".,:/-").replace(",", "").casefold() for match in fact.finditer(text)
    )


def spelled_numbers(text: str) -> frozenset[str]:
    """Return the numbers that a text writes as words: an answer may write them in digits."""
    words = re.findall(r"[a-z]+", text.casefold())
    return frozenset(english.NUMBER_WORDS[word] for word in words if word in english.NUMBER_WORDS)


def is_personal(request: Request, policy: AdmissionPolicy) -> bool:
    """Return whether a question that others were to share in is its asker's own affair."""
    if request.sharing == "private" or policy.personal == "allow":
        return False
    question = question_of(request)
    return speaks_of_self(question) or bool(personal_data(question))


def _personal(a: _Answered) -> str | None:
    if not a.shared or a.policy.personal == "allow":
        return None
    if is_personal(a.request, a.policy):
        return "the question is personal"
    told = personal_data(a.completion.text)
    if told and told - personal_data(a.documents):
        return "the answer holds personal data"
    if speaks_to_one(a.completion.text):
        return "the answer speaks of what one person has"
    return None


_CHECKS: tuple[tuple[str, Callable[[_Answered], str | None]], ...] = (
    ("no_store", _no_store),
    ("error", _error),
    ("finish_reason", _finish),
    ("tool_calls", _tool_calls),
    ("empty", _empty),
    ("refusal", _refusal),
    ("no_documents", _no_documents),
    ("size", _size),
    ("blank_question", _blank_question),
    ("temperature", _temperature),
    ("poison_check", _poison),
    ("canonical_question", _canonical),
    ("citation", _citation),
    ("grounding", _grounding),
    ("personal", _personal),
)
