"""Documents as blocks: one text, one label, one place in memory, whatever the retriever says."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

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


class _Printed(NamedTuple):
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


class _Draft(NamedTuple):
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


def identity_of(source: str, text: str) -> Fingerprint:
    """Return the hash of source and printed text that label and block hash come from."""
    name = source.encode("utf-8", "surrogatepass")
    framed = b"ragcache/block/1:%d:%b" % (len(name), name)
    digest = hashlib.sha256(framed + text.encode("utf-8", "surrogatepass"))
    return Fingerprint(digest.hexdigest())


def _merge(documents: Sequence[Document], policy: LayoutPolicy) -> list[_Draft]:
    drafts: dict[str, _Draft] = {}
    for rank, document in enumerate(documents):
        printed = _printed(document, policy)
        same = drafts.get(printed.text)
        if same is None:
            drafts[printed.text] = _Draft(printed, (document,), rank)
            continue
        # The smallest source name, never the best ranked one: a label must not depend on rank.
        smallest = printed if printed.source < same.printed.source else same.printed
        drafts[printed.text] = _Draft(smallest, (*same.documents, document), same.rank)
    return [draft for text, draft in drafts.items() if text and not text.isspace()]


def _printed(document: Document, policy: LayoutPolicy) -> _Printed:
    text, said = document.text, ""
    if document.metadata and policy.metadata_keys:
        said = _said(document.metadata, policy.metadata_keys)
    known = _known_print if len(text) <= _KNOWN_CHARACTERS else _print
    return known(text, document.source, said, policy.print_source, policy.normalise_newlines)


def _said(metadata: Mapping[str, Any], keys: Iterable[str]) -> str:
    """Return what the opening tag says of the metadata."""
    named = [(key, metadata.get(key)) for key in keys]
    return "".join([f" {key}={_quoted(value)}" for key, value in named if value not in (None, "")])


def _print(text: str, source: str, said: str, *policy: bool) -> _Printed:
    print_source, normalise = policy
    text = normal_text(text) if normalise else text
    identity = identity_of(source, text)
    number = int(identity, 16)
    digits = f"{number % 9 + 1}{number // 9}"
    named = f" source={_quoted(source)}" if print_source and source else ""
    return _Printed(text, source, identity, digits, _free_tag(text), named + said)


# The same documents come again and again: what is made of a short text is kept.
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
