"""Gates: one difference each that makes two questions ask for different answers.

All of them work on readings made beforehand; the stored one was made when it was stored.
"""

from __future__ import annotations

from collections.abc import Sequence

from .alignment import unexplained
from .lexicon.english import words
from .lexicon.tables import tables
from .matching import Comparison, blocks, compare, function_likeness, reversed_blocks, says
from .policy import LookupPolicy
from .reading import Reading

_EXCHANGED = (
    {"from", "to"},
    {"from", "into"},
    {"before", "after"},
    {"on", "off"},
    {"in", "out"},
    {"over", "under"},
    {"above", "below"},
    {"up", "down"},
    {"with", "without"},
    {"within", "after"},
    {"until", "from"},
    {"since", "until"},
    {"inside", "outside"},
    {"during", "after"},
    {"during", "before"},
)
_LIMITING = words("within after before until since under over above below during without")
_COMPATIBLE = (
    {"when", "duration"},
    {"amount", "count"},
    {"amount", "size"},
    {"count", "duration"},
)
_ENDS = {
    "from": "start",
    "out": "start",
    "to": "goal",
    "into": "goal",
    "onto": "goal",
    "for": "goal",
    "before": "before",
    "after": "after",
    "over": "over",
    "under": "under",
    "above": "over",
    "below": "under",
}


def gate_reason(
    stored: Reading, asked: Reading, policy: LookupPolicy, *, names_told: bool = False
) -> str:
    """Return the first gate that keeps the two apart, cheap ones first, or "".

    Args:
        stored: The question whose answer is stored.
        asked: The question asked now.
        policy: Which gates there are.
        names_told: A second opinion that has learned names decides about them.
    """
    if policy.gates == "off":
        return ""
    if reason := _unfit(stored, asked, policy):
        return reason
    compared = compare(stored, asked)
    for name, differs in GATES:
        if names_told and differs is entities_differ:
            continue
        if differs(compared):
            return name
    return unexplained(compared, policy)


def _unfit(stored: Reading, asked: Reading, policy: LookupPolicy) -> str:
    flags = stored.flags | asked.flags
    if "instruction" in flags or "mixed" in flags:
        return "instruction"
    if (stored.leans or asked.leans) and stored.stems != asked.stems:
        return "conversation"
    return policy_reason(stored, asked) if policy.policy_gate else ""


def policy_reason(stored: Reading, asked: Reading) -> str:
    """Return why actions and questions about the present moment are not matched, or ""."""
    flags = stored.flags | asked.flags
    if "action" in flags:
        return "policy_action"
    return "policy_time" if "time" in flags else ""


def languages_differ(c: Comparison) -> bool:
    """Whether the questions are in two known languages."""
    one, other = c.stored.language, c.asked.language
    return bool(one and other and one != other)


def numbers_differ(c: Comparison) -> bool:
    """Whether the numbers, units, dates and ids are not the same."""
    return c.stored.quantities != c.asked.quantities


def negations_differ(c: Comparison) -> bool:
    """Whether one side is turned round and the other is not.

    Words that negate by their meaning count where the other side lacks them; weak ones
    ("free") can only balance.
    """
    known = tables()
    left = _turns(c.stored, c.left)
    right = _turns(c.asked, c.right)
    if (left - right) % 2 == 0:
        return False
    weak = [c.stored.content[i].stem in known.weak_negators for i in c.left]
    weak += [c.asked.content[j].stem in known.weak_negators for j in c.right]
    return not any(weak)


def _turns(reading: Reading, places: Sequence[int]) -> int:
    negators = tables().negators
    return len(reading.negations) + sum(reading.content[at].stem in negators for at in places)


def antonyms(c: Comparison) -> bool:
    """Whether words left over on the two sides are opposites."""
    known = tables().opposites
    rights = {c.asked.content[j].stem for j in c.right}
    for i in c.left:
        stem = c.stored.content[i].stem
        if known.get(stem, frozenset()) & rights:
            return True
        if any(_prefixed(stem, other) or _prefixed(other, stem) for other in rights):
            return True
    return False


def _prefixed(longer: str, shorter: str) -> bool:
    if len(shorter) < 3 or not longer.endswith(shorter):
        return False
    return longer[: -len(shorter)] in (
        "un",
        "in",
        "im",
        "ir",
        "il",
        "dis",
        "non",
        "de",
        "mis",
        "anti",
    )


def siblings(c: Comparison) -> bool:
    """Whether two different ones of a kind are left over on the two sides.

    Light words count here, too: "the fee per day" is not "the fee per week".
    """
    kinds = tables().kinds
    mine, theirs = {i for i, _ in c.pairs}, {j for _, j in c.pairs}
    left = [kinds.get(c.stored.content[i].stem) for i in c.left if i not in mine]
    right = [kinds.get(c.asked.content[j].stem) for j in c.right if j not in theirs]
    return any(one & other for one in left if one for other in right if other)


def entities_differ(c: Comparison) -> bool:
    """Whether a name, or a word no vocabulary knows, has no counterpart."""
    mine = [c.stored.content[i] for i in c.open_left]
    theirs = [c.asked.content[j] for j in c.open_right]
    if any(word.proper for word in [*mine, *theirs]):
        return True
    return any(not w.known for w in mine) and any(not w.known for w in theirs)


def question_types_differ(c: Comparison) -> bool:
    """Whether both name what they ask for, and it is not the same."""
    one, other = c.stored.question, c.asked.question
    if not one or not other or one == other:
        return False
    if one == "what":
        return not says(other, c.stored)
    if other == "what":
        return not says(one, c.asked)
    return {one, other} not in _COMPATIBLE or "past" in (c.stored.tense, c.asked.tense)


def tenses_differ(c: Comparison) -> bool:
    """Whether one asks about the past and the other about the present or future."""
    one, other = c.stored.tense, c.asked.tense
    return bool(one and other and one != other and "past" in (one, other))


def slots_differ(c: Comparison) -> bool:
    """Whether a word stands at the start of a way in one question and at its end in the other."""
    mine, theirs = _ends(c.stored), _ends(c.asked)
    for word in mine.keys() & theirs.keys():
        if not mine[word] & theirs[word]:
            return True
    return _cause(c.stored) != _cause(c.asked)


def _ends(reading: Reading) -> dict[str, set[str]]:
    """Return which end of a way each word is: "from savings to checking"."""
    found: dict[str, set[str]] = {}
    for preposition, word in reading.slots:
        if end := _ENDS.get(preposition):
            found.setdefault(word, set()).add(end)
    return found


def _cause(reading: Reading) -> str:
    """What causes a thing and what it causes are told apart by "of" alone."""
    if "caus" not in reading.stems:
        return ""
    return "of" if any(preposition == "of" for preposition, _ in reading.slots) else "by"


def prepositions_differ(c: Comparison) -> bool:
    """Whether a preposition was exchanged for one that limits otherwise."""
    mine, theirs = set(c.stored.function), set(c.asked.function)
    only_mine, only_theirs = mine - theirs, theirs - mine
    if any(
        pair & only_mine and pair & only_theirs and pair <= only_mine | only_theirs
        for pair in _EXCHANGED
    ):
        return _same_object(c)
    a, b = only_mine & _LIMITING, only_theirs & _LIMITING
    return bool(a and b)


def _same_object(c: Comparison) -> bool:
    return function_likeness(c.stored, c.asked) >= 0.5


def order_differs(c: Comparison) -> bool:
    """Whether the same words stand in another order that gives them other roles."""
    if c.stored.language == "zh":
        return _reversed(c)
    return _reordered(c)


def _reversed(c: Comparison) -> bool:
    """Three blocks in reverse, unless the middle one only joins the others ("A and B")."""
    pairs = blocks(c.stored.stems, c.asked.stems)
    return any(
        c.stored.content[middle].stem not in _JOINING for _, middle, _ in reversed_blocks(pairs)
    )


def _reordered(c: Comparison) -> bool:
    """Whether the order is no rotation ("in settings, how do I ...?").

    Only where the words of structure agree as well: else it is active against passive.
    """
    if c.open_left or c.open_right or function_likeness(c.stored, c.asked) < 0.75:
        return False
    by_stored = [j for _, j in sorted(blocks(c.stored.stems, c.asked.stems))]
    if len(by_stored) < 2:
        return False
    start = by_stored.index(min(by_stored))
    return by_stored[start:] + by_stored[:start] != sorted(by_stored)


_JOINING = frozenset("和与跟同或、")


def comparisons_differ(c: Comparison) -> bool:
    """Whether a superlative has no counterpart."""
    loose = [c.stored.content[i] for i in c.open_left] + [c.asked.content[j] for j in c.open_right]
    return any(
        w.text.endswith("est") and len(w.text) > 5 and w.stem not in _NO_SUPERLATIVE for w in loose
    )


_NO_SUPERLATIVE = frozenset(
    (
        "interest",
        "request",
        "suggest",
        "invest",
        "forest",
        "contest",
        "harvest",
        "digest",
        "protest",
        "honest",
        "modest",
        "arrest",
        "guest",
        "quest",
        "latest",
    )
)

GATES = (
    ("language", languages_differ),
    ("number", numbers_differ),
    ("negation", negations_differ),
    ("antonym", antonyms),
    ("entity", entities_differ),
    ("entity", siblings),
    ("question_type", question_types_differ),
    ("tense", tenses_differ),
    ("slot", slots_differ),
    ("slot", prepositions_differ),
    ("order", order_differs),
    ("comparison", comparisons_differ),
)
