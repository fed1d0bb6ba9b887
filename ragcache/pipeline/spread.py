"""Which entries come up for everything: how many different questions each was nearest to in vain.

An entry that is nearest to many questions that it does not answer takes places among the nearest
which others need. Counted in each process; the operator is told, nothing is taken out of service.
"""

from __future__ import annotations

from collections import OrderedDict

from ..admission import hubs
from ..keys import fingerprint, normal_question
from ..types import EntryId

#: Entries watched, and different questions counted for each.
_ENTRIES_MAX, _QUESTIONS_MAX = 2_000, 64
#: With so many it is looked at for the first time, then at each doubling.
_FIRST_LOOK = 8


class Spread:
    """Counts, for the entries that came up lately, the questions that they did not answer."""

    def __init__(self) -> None:
        self._questions: OrderedDict[EntryId, set[str]] = OrderedDict()

    def in_vain(self, entry: EntryId, question: str) -> bool:
        """Note that an entry was nearest to a question; return whether it is a hub."""
        known = self._questions.setdefault(entry, set())
        self._questions.move_to_end(entry)
        if len(self._questions) > _ENTRIES_MAX:
            self._questions.popitem(last=False)
        before = len(known)
        if before < _QUESTIONS_MAX:
            known.add(fingerprint(normal_question(question)))
        return len(known) > before and _is_looked_at(len(known)) and entry in self._hubs()

    def _hubs(self) -> frozenset[str]:
        return hubs({name: float(len(asked)) for name, asked in self._questions.items()})


def _is_looked_at(many: int) -> bool:
    return many >= _FIRST_LOOK and many & (many - 1) == 0
