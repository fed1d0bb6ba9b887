"""Labels in an answer, mapped back to the caller's documents."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..types import Block, Citation, Document, JsonObject, Layout

#: One label or several in brackets: [12345], [12345, 67890], [^12345], 【12345】.
_CITED = re.compile(r"[\[【]\s*\^?(\d+(?:\s*[,;]\s*\^?\d+)*)\s*[\]】]")
_NUMBER = re.compile(r"\d+")
#: The longest bracket that is held back while it may still become a citation.
_LONGEST = 200


def citation_of(block: Block, ranks: Mapping[int, int] | None = None) -> Citation:
    """Return what a block's label stands for."""
    return Citation(label=block.label, sources=block.sources, ranks=_ranks(block, ranks))


def citations(text: str, layout: Layout, documents: Sequence[Document] = ()) -> dict[str, Citation]:
    """Return the labels an answer cites, in the order of their first use.

    Args:
        text: The answer.
        layout: As sent: only its labels count, any other number in brackets is just a number.
        documents: The caller's documents, for their ranks; the blocks' own where left out.
    """
    known = labels_of(layout, documents)
    return {label: known[label] for label in cited_labels(text) if label in known}


def labels_of(layout: Layout, documents: Sequence[Document] = ()) -> dict[str, Citation]:
    """Return every label of a layout with what it stands for."""
    places = {id(document): rank for rank, document in enumerate(documents)}
    return {str(block.label): citation_of(block, places) for block in layout.blocks}


def cited_labels(text: str) -> list[str]:
    """Return the numbers in brackets, each once, in order."""
    found = (n for match in _CITED.finditer(text) for n in _NUMBER.findall(match[1]))
    return list(dict.fromkeys(found))


def _ranks(block: Block, places: Mapping[int, int] | None) -> tuple[int, ...]:
    if not places:
        return (block.rank,)
    ranks = [places[id(d)] for d in block.documents if id(d) in places]
    return tuple(sorted(ranks)) or (block.rank,)


class CitationStream:
    """Citations of an answer that arrives in pieces.

    `feed` returns the citations that became complete with a piece; a label cut in two by the
    stream is found when its second half arrives.
    """

    def __init__(self, layout: Layout, documents: Sequence[Document] = ()) -> None:
        self._known = labels_of(layout, documents)
        self._open = ""
        self.found: dict[str, Citation] = {}

    def feed(self, piece: str) -> tuple[Citation, ...]:
        """Take the next piece of the answer."""
        text = self._open + piece
        new = [n for n in cited_labels(text) if n in self._known and n not in self.found]
        self.found.update({label: self._known[label] for label in new})
        self._open = _unfinished(text)
        return tuple(self.found[label] for label in new)


def _unfinished(text: str) -> str:
    """Return the end of a text from the last bracket that is still open."""
    start = max(text.rfind("["), text.rfind("【"))
    if start < 0 or len(text) - start > _LONGEST:
        return ""
    return "" if re.search(r"[\]】]", text[start:]) else text[start:]


def map_tool_arguments(
    arguments: Any, layout: Layout, *, keys: frozenset[str] = frozenset({"block_id", "block_ids"})
) -> Any:
    """Return tool-call arguments with labels replaced by the caller's numbering, 1 for the best.

    Only the values of `keys` are labels; a number elsewhere in the arguments stays.
    """
    ranks = {str(block.label): block.rank + 1 for block in layout.blocks}
    return _mapped(arguments, ranks, keys, inside=False)


def _mapped(value: Any, ranks: Mapping[str, int], keys: frozenset[str], *, inside: bool) -> Any:
    if isinstance(value, Mapping):
        return {
            k: _mapped(v, ranks, keys, inside=inside or str(k) in keys) for k, v in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_mapped(v, ranks, keys, inside=inside) for v in value]
    if not inside or isinstance(value, bool) or str(value).strip() not in ranks:
        return value
    rank = ranks[str(value).strip()]
    return rank if isinstance(value, int) else str(rank)


def cited_in_tool_calls(
    calls: Sequence[JsonObject], layout: Layout, documents: Sequence[Document] = ()
) -> dict[str, Citation]:
    """Return the labels that stand in the arguments of tool calls, as numbers or as text."""
    known = labels_of(layout, documents)
    found = dict.fromkeys(n for call in calls for n in _NUMBER.findall(_arguments(call)))
    return {label: known[label] for label in found if label in known}


def _arguments(call: JsonObject) -> str:
    function = call.get("function")
    place = function if isinstance(function, Mapping) else call
    return str(place.get("arguments") or place.get("input") or place.get("args") or "")
