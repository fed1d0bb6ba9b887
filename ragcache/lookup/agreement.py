"""Whether two answers say the same: the comparison behind verification and promotion."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from ..keys import fold
from .lexicon import english
from .quantities import quantities
from .words import Word, words_of

_LABEL = re.compile(r"\[\d{1,9}\]")
#: Share of content words that two wordings of one answer have in common.
OVERLAP = 0.5
_NEGATIONS = english.words("not no never none nothing nobody neither nor without cannot")


def answers_agree(one: str, other: str, *, overlap: float = OVERLAP) -> bool:
    """Return whether two answers make the same claims, as far as words tell.

    Equal text agrees. Else numbers, names and negations must be equal, and enough of the
    content words shared. Labels of documents and layout are no claims.
    """
    a, b = _plain(one), _plain(other)
    if a == b:
        return True
    left, right = words_of(a), words_of(b)
    if quantities(left).values != quantities(right).values:
        return False
    if _turns(left) % 2 != _turns(right) % 2:
        return False
    return _names_within(left, right) and _shared(left, right) >= overlap


def _plain(text: str) -> str:
    return " ".join(_LABEL.sub(" ", fold(text)).split()).strip(" .!")


def _turns(words: Sequence[Word]) -> int:
    return sum(word.text in _NEGATIONS for word in words)


def _names_within(left: Sequence[Word], right: Sequence[Word]) -> bool:
    """Whether every name of each side occurs on the other."""
    said, heard = {word.stem for word in left}, {word.stem for word in right}
    return all(word.stem in heard for word in left if word.proper) and all(
        word.stem in said for word in right if word.proper
    )


def _shared(left: Sequence[Word], right: Sequence[Word]) -> float:
    one, other = _content(left), _content(right)
    whole = sum((one | other).values())
    return sum((one & other).values()) / whole if whole else 0.0


def _content(words: Sequence[Word]) -> Counter[str]:
    return Counter({word.stem for word in words if word.text not in english.FUNCTION})
