"""Documents as blocks: one text, one label, one place in memory, whatever the retriever says."""

from __future__ import annotations

import hashlib
import json
import re
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
class _Draft:
    """A block before its label is known to be unique."""

    documents: tuple[Document, ...]
    rank: int
    text: str
    source: str
    identity: str

    @property
    def digits(self) -> str:
        """A long decimal number without a leading zero, of which a label is the start."""
        return _digits(self.identity)


@lru_cache(maxsize=_KNOWN_TEXTS)
def _digits(identity: str) -> str:
    number = int(identity, 16)
    return f"{number % 9 + 1}{number // 9}"


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
    return tuple(_finish(draft, label, policy) for draft, label in zip(drafts, labels, strict=True))


def body_of(document: Document, policy: LayoutPolicy) -> str:
    """Return the text of a document as it is printed."""
    if not policy.normalise_newlines:
        return document.text
    known = _known_text if len(document.text) <= _KNOWN_CHARACTERS else normal_text
    return known(document.text)


def identity_of(source: str, text: str) -> str:
    """Return the hash of source and printed text that label and block hash come from."""
    known = _known_identity if len(text) <= _KNOWN_CHARACTERS else _identity
    return known(source, text)


# The same documents come again and again: what is known of a text is kept, of short ones only.
_known_text = lru_cache(maxsize=_KNOWN_TEXTS)(normal_text)


@lru_cache(maxsize=_KNOWN_TEXTS)
def _known_identity(source: str, text: str) -> str:
    return _identity(source, text)


def _identity(source: str, text: str) -> str:
    name = source.encode("utf-8", "surrogatepass")
    framed = b"ragcache/block/1:%d:%b" % (len(name), name)
    return hashlib.sha256(framed + text.encode("utf-8", "surrogatepass")).hexdigest()


def _merge(documents: Sequence[Document], policy: LayoutPolicy) -> list[_Draft]:
    by_text: dict[str, list[tuple[int, Document]]] = {}
    for rank, document in enumerate(documents):
        text = body_of(document, policy)
        if text.strip():
            by_text.setdefault(text, []).append((rank, document))
    return [_draft(text, found) for text, found in by_text.items()]


def _draft(text: str, found: Sequence[tuple[int, Document]]) -> _Draft:
    # The smallest source name, never the best ranked one: a label must not depend on rank.
    source = min(document.source for _, document in found)
    return _Draft(
        documents=tuple(document for _, document in found),
        rank=found[0][0],
        text=text,
        source=source,
        identity=identity_of(source, text),
    )


def _labels(
    drafts: Sequence[_Draft], length: int, taken: Mapping[Label, Fingerprint]
) -> list[Label]:
    """Return one label a block. Those that collide are lengthened together, so that which of
    them came first makes no difference."""
    lengths, digits = [length] * len(drafts), [draft.digits for draft in drafts]
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
    counts: dict[Label, int] = {}
    for label in labels:
        counts[label] = counts.get(label, 0) + 1
    return [
        at
        for at, label in enumerate(labels)
        if (counts[label] > 1 or taken.get(label, drafts[at].identity) != drafts[at].identity)
        and len(label) < _MOST_DIGITS
    ]


def _finish(draft: _Draft, label: Label, policy: LayoutPolicy) -> Block:
    return Block(
        label=label,
        text=render_block(label, draft, policy),
        hash=Fingerprint(draft.identity),
        documents=draft.documents,
        rank=draft.rank,
    )


def render_block(label: Label, draft: _Draft, policy: LayoutPolicy) -> str:
    """Return the bytes of a block. The tag is one that its text does not contain."""
    tag = _free_tag(draft.text)
    head = [f'{tag} id="{label}"']
    if policy.print_source and draft.source:
        head.append(f"source={_quoted(draft.source)}")
    metadata = _representative(draft).metadata
    head.extend(
        f"{key}={_quoted(metadata[key])}"
        for key in policy.metadata_keys
        if metadata.get(key) not in (None, "")
    )
    return f"<{' '.join(head)}>\n{draft.text}\n</{tag}>"


def _representative(draft: _Draft) -> Document:
    """Return the document whose metadata is printed: the one that gave the label."""
    return next(d for d in draft.documents if d.source == draft.source)


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
