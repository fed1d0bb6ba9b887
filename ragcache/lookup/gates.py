"""Gates: one difference each, that makes two questions ask for different answers."""

from __future__ import annotations

from collections import Counter

import numpy as np

from . import english
from .policy import LookupPolicy
from .reading import Reading
from .words import stem

_PAIRS = frozenset(
    frozenset(stem(word) for word in pair.split())
    for line in english.ANTONYMS.split("\n")
    for pair in line.split("|")
    if pair.strip()
)


def gate_reason(stored: Reading, asked: Reading, policy: LookupPolicy) -> str:
    """Return the first gate that keeps the two apart, cheap ones first, or ""."""
    if policy.gates == "off":
        return ""
    if "instruction" in stored.flags | asked.flags:
        return "instruction"
    if stored.leans or asked.leans:
        return "conversation" if stored.text.casefold() != asked.text.casefold() else ""
    if policy.policy_gate and (reason := policy_reason(stored, asked)):
        return reason
    for name, differs in _GATES:
        if differs(stored, asked):
            return name
    return "" if aligned(stored, asked, policy) else "words"


def policy_reason(stored: Reading, asked: Reading) -> str:
    """Return why actions and questions about the present moment are not matched, or ""."""
    flags = stored.flags | asked.flags
    if "action" in flags:
        return "policy_action"
    return "policy_time" if "time" in flags else ""


def numbers_differ(stored: Reading, asked: Reading) -> bool:
    """Whether the numbers, units, dates and ids are not the same multiset."""
    return stored.quantities != asked.quantities


def negations_differ(stored: Reading, asked: Reading) -> bool:
    """Whether one negates and the other does not."""
    return stored.negations % 2 != asked.negations % 2


def languages_differ(stored: Reading, asked: Reading) -> bool:
    """Whether the questions are in two known languages."""
    return bool(stored.language and asked.language and stored.language != asked.language)


def question_types_differ(stored: Reading, asked: Reading) -> bool:
    """Whether both name what they ask for, and it is not the same."""
    return bool(stored.question and asked.question and stored.question != asked.question)


def antonyms(stored: Reading, asked: Reading) -> bool:
    """Whether words left over on the two sides are opposites."""
    left, right = left_over(stored, asked)
    return any(frozenset((a, b)) in _PAIRS for a in left for b in right)


def entities_differ(stored: Reading, asked: Reading) -> bool:
    """Whether a name has no counterpart in the other question."""
    left, right = left_over(stored, asked)
    return bool(left & set(stored.names)) or bool(right & set(asked.names))


def order_differs(stored: Reading, asked: Reading) -> bool:
    """Whether the same words stand in another order, and not as a rotation."""
    if Counter(stored.content) != Counter(asked.content):
        return False
    if not stored.content or _same_share(stored.function, asked.function) < 0.75:
        return False
    doubled = stored.content + stored.content
    size = len(asked.content)
    return not any(doubled[i : i + size] == asked.content for i in range(size))


def _same_share(one: tuple[str, ...], other: tuple[str, ...]) -> float:
    a, b = Counter(one), Counter(other)
    whole = sum((a | b).values())
    return sum((a & b).values()) / whole if whole else 1.0


def left_over(stored: Reading, asked: Reading) -> tuple[set[str], set[str]]:
    """Return the content words of each side that the other side lacks."""
    one, other = set(stored.content), set(asked.content)
    return one - other, other - one


def aligned(stored: Reading, asked: Reading, policy: LookupPolicy) -> bool:
    """Whether every word left over on either side is explained by the other side."""
    left, right = left_over(stored, asked)
    if not left and not right:
        return True
    if policy.gates == "strict" or stored.vectors is None or asked.vectors is None:
        return False
    if not len(stored.vectors) or not len(asked.vectors):
        return False
    cosines = stored.vectors.astype(np.float32) @ asked.vectors.astype(np.float32).T / 127**2
    rows = [i for i, word in enumerate(stored.content) if word in left]
    columns = [j for j, word in enumerate(asked.content) if word in right]
    worst = min([*cosines[rows].max(axis=1), *cosines[:, columns].max(axis=0)], default=1.0)
    return bool(worst >= policy.alignment)


_GATES = (
    ("language", languages_differ),
    ("number", numbers_differ),
    ("negation", negations_differ),
    ("antonym", antonyms),
    ("entity", entities_differ),
    ("question_type", question_types_differ),
    ("order", order_differs),
)
