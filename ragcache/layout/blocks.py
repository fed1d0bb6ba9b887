"""Documents as blocks: one text, one label, one place in memory, whatever the retriever says."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ..keys import normal_text
from ..types import Block, Document, Fingerprint, Label
from .policy import LayoutPolicy

_TAG = "document"
#: Values that stand in a tag as they are.
_PLAIN = re.compile(r"[\w./:#?&=%+-]*")
#: Digits that SHA-256 always gives.
_MOST_DIGITS = 70
#: How many texts are kept in mind, and how long one may be.
_KNOWN_TEXTS = 2048
_KNOWN_CHARACTERS = 4000


@dataclass(frozen=True, slots=True)
class _Printed:
    """A text under its source, all but the label it is printed with.

    `digits` is a long decimal number without a leading zero, of which a label is the start.
    """

    text: str
    source: str
    identity: Fingerprint
    digits: str
    tag: str
    attributes: str

    def labelled(self, label: Label) -> str:
        """Return the bytes of the block."""
        return f'<{self.tag} id="{label}"{self.attributes}>\n{self.text}\n</{self.tag}>'


@dataclass(frozen=True, slots=True)
class _Draft:
    """A block before its label is known to be unique."""

    printed: _Printed
    documents: tuple[Document, ...]
    rank: int


def make_blocks(
    documents: Sequence[Document],
    *,
    policy: LayoutPolicy,
    taken: Mapping[Label, Fingerprint] | None = None,
) -> tuple[Block, ...]:
    """Return the blocks of a request in retrieval order, duplicates merged, empty ones left out.

    Args:
        documents: As retrieved, best first.
        policy: Normalisation, metadata keys, label length.
        taken: Labels that earlier turns of the conversation use, with the block each stands for.
    """
    drafts = _merge(documents, policy)
    labels = _labels(drafts, policy.label_digits, taken or {})
    return tuple([_finish(draft, label) for draft, label in zip(drafts, labels, strict=True)])


def body_of(document: Document, policy: LayoutPolicy) -> str:
    """Return the text of a document as it is printed."""
    if not policy.normalise_newlines:
        return document.text
    known = _known_text if len(document.text) <= _KNOWN_CHARACTERS else normal_text
    return known(document.text)


def identity_of(source: str, text: str) -> Fingerprint:
    """Return the hash of source and printed text that label and block hash come from."""
    name = source.encode("utf-8", "surrogatepass")
    framed = b"ragcache/block/1:%d:%b" % (len(name), name)
    digest = hashlib.sha256(framed + text.encode("utf-8", "surrogatepass"))
    return Fingerprint(digest.hexdigest())


def _merge(documents: Sequence[Document], policy: LayoutPolicy) -> list[_Draft]:
    by_text: dict[str, list[tuple[int, Document]]] = {}
    for rank, document in enumerate(documents):
        by_text.setdefault(body_of(document, policy), []).append((rank, document))
    return [_draft(text, found, policy) for text, found in by_text.items() if text.strip()]


def _draft(text: str, found: Sequence[tuple[int, Document]], policy: LayoutPolicy) -> _Draft:
    # The smallest source name, never the best ranked one: a label must not depend on rank.
    chosen = found[0][1] if len(found) == 1 else min((d for _, d in found), key=_source)
    known = _known_print if len(text) <= _KNOWN_CHARACTERS else _print
    return _Draft(
        known(text, chosen.source, _attributes(chosen, policy)),
        tuple(document for _, document in found),
        found[0][0],
    )


def _source(document: Document) -> str:
    return document.source


def _attributes(document: Document, policy: LayoutPolicy) -> str:
    """Return what the opening tag says beside the label."""
    printed = policy.print_source and document.source
    source = f" source={_quoted(document.source)}" if printed else ""
    if not document.metadata:
        return source
    named = [(key, document.metadata.get(key)) for key in policy.metadata_keys]
    said = [f" {key}={_quoted(value)}" for key, value in named if value not in (None, "")]
    return source + "".join(said)


def _print(text: str, source: str, attributes: str) -> _Printed:
    identity = identity_of(source, text)
    number = int(identity, 16)
    digits = f"{number % 9 + 1}{number // 9}"
    return _Printed(text, source, identity, digits, _free_tag(text), attributes)


# The same documents come again and again: what is made of a short text is kept.
_known_text = lru_cache(maxsize=_KNOWN_TEXTS)(normal_text)
_known_print = lru_cache(maxsize=_KNOWN_TEXTS)(_print)


def _labels(
    drafts: Sequence[_Draft], length: int, taken: Mapping[Label, Fingerprint]
) -> list[Label]:
    """Return one label a block. Those that collide are lengthened together, so that which of
    them came first makes no difference."""
    lengths, digits = [length] * len(drafts), [draft.printed.digits for draft in drafts]
    while True:
        labels = [Label(d[:n]) for d, n in zip(digits, lengths, strict=True)]
        clashing = _clashing(drafts, labels, taken)
        if not clashing:
            return labels
        for at in clashing:
            lengths[at] += 1


def _clashing(
    drafts: Sequence[_Draft], labels: Sequence[Label], taken: Mapping[Label, Fingerprint]
) -> list[int]:
    if not taken and len(set(labels)) == len(labels):
        return []
    counts = Counter(labels)
    return [
        at
        for at, label in enumerate(labels)
        if (counts[label] > 1 or _is_taken(label, drafts[at].printed, taken))
        and len(label) < _MOST_DIGITS
    ]


def _is_taken(label: Label, printed: _Printed, taken: Mapping[Label, Fingerprint]) -> bool:
    return taken.get(label, printed.identity) != printed.identity


def _finish(draft: _Draft, label: Label) -> Block:
    return Block(
        label=label,
        text=draft.printed.labelled(label),
        hash=draft.printed.identity,
        documents=draft.documents,
        rank=draft.rank,
    )


def _free_tag(text: str) -> str:
    if "<" not in text:
        return _TAG
    squeezed = "".join(text.casefold().split())
    number, tag = 1, _TAG
    while f"<{tag}" in squeezed or f"</{tag}" in squeezed:
        number += 1
        tag = f"{_TAG}-{number}"
    return tag


def _quoted(value: Any) -> str:
    """Return a value on one line that cannot close the tag it stands in."""
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
    if _PLAIN.fullmatch(text):
        return f'"{text}"'
    return (
        json.dumps(" ".join(text.split()), ensure_ascii=False).replace("<", "‹").replace(">", "›")
    )


def sources_of(blocks: Iterable[Block]) -> tuple[str, ...]:
    """Return the sources of some blocks, each once."""
    return tuple(dict.fromkeys(source for block in blocks for source in block.sources))
