"""Whether a question can be understood without the conversation before it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ..types import Message
from .reading import Reading, read

#: Words that open a turn by taking up the one before.
_OPENING = re.compile(
    r"^(?:and|so|ok(?:ay)?|but|then|also|great|fine|right|sure|yes|yeah|no|cool|perfect|actually|or"
    r"|what about|how about|那|那么|所以|然后|另外|还有|好的|嗯)\b",
    re.IGNORECASE,
)
#: Words that point back at something said.
_POINTING = re.compile(
    r"\b(?:it|its|they|them|their|theirs|that|this|those|these|he|him|his|she|hers|one|ones|instead"
    r"|again|else|too|either|both|there)\b|它|他们|她|这个|那个|这些|那些|上面|刚才",
    re.IGNORECASE,
)
_ADDRESSED = re.compile(r"\b(?:you|your|yours)\b|你们|贵", re.IGNORECASE)


def needs_context(question: str, history: Sequence[Message] = ()) -> bool:
    """Return whether the question leans on what was said before.

    Without history, only one that cannot be understood alone does ("cancel it"). With history,
    whatever does not clearly stand alone is taken to lean on it: an opening that takes up the
    turn before, a word that points back, an order to act, or a question that names nothing of
    its own. A wrong "stands alone" can serve another conversation's answer; a wrong "leans"
    only costs a call.
    """
    reading = read(question)
    if reading.leans or not history:
        return reading.leans
    text = reading.text.strip()
    if _OPENING.match(text) or _POINTING.search(text) or "action" in reading.flags:
        return True
    return not _names_something(reading)


def _names_something(reading: Reading) -> bool:
    """Whether the question brings its own subject: a name, whom it addresses, enough words."""
    weighty = [word for word in reading.content if not word.soft]
    named = any(word.proper for word in weighty)
    if len(weighty) < 2:
        return False
    return named or len(weighty) > 4 or bool(_ADDRESSED.search(reading.text))
