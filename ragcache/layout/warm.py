"""Which prefixes to send ahead when a version changes, and when the new version is warm."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..types import Block, Document, Fingerprint, JsonObject, Layout, Request
from .plan import Plan
from .tree import Node, PrefixTree


@dataclass(frozen=True, slots=True, kw_only=True)
class HotPrefix:
    """A prefix that is asked for often.

    Args:
        documents: In the order of the prompt.
        tokens: Of the prefix, head included.
        visits: How often it was sent.
    """

    system: str
    tools: tuple[JsonObject, ...]
    documents: tuple[Document, ...]
    tokens: int
    visits: int

    def request(self, like: Request, *, system: str | None = None) -> Request:
        """Return a request that sends no more than this prefix, under a new system text.

        Args:
            like: Gives tenant, principal, model and everything else.
            system: The new system text; the prefix's own for None.
        """
        return like.replace(
            system=self.system if system is None else system,
            tools=self.tools,
            documents=self.documents,
            question="",
            history=(),
            formatted=None,
        )


@dataclass(frozen=True, slots=True)
class _Sample:
    """One request whose blocks stand on a path of the tree."""

    system: str
    tools: tuple[JsonObject, ...]
    blocks: tuple[Block, ...]
    keys: tuple[Fingerprint, ...]


class HotPrompts:
    """The texts behind the trees of all trust groups: what a warm-up can send.

    Args:
        max_entries: How many requests are kept, least recently sent forgotten first.
        max_characters: Bound of their texts.
    """

    def __init__(self, *, max_entries: int = 1000, max_characters: int = 20_000_000) -> None:
        self._max_entries = max_entries
        self._max_characters = max_characters
        self._characters = 0
        self._samples: OrderedDict[tuple[str, ...], _Sample] = OrderedDict()

    def __len__(self) -> int:
        return len(self._samples)

    def note(self, group: str, request: Request, layout: Layout) -> None:
        """Note a request that was sent. Prompts that others formatted cannot be sent by halves."""
        plan = layout.plan
        if request.formatted is not None or request.history or not isinstance(plan, Plan):
            return
        keys = (plan.head.key, *(step.key for step in plan.steps))
        self._drop((group, *keys))
        sample = _Sample(request.system, layout.tools, layout.blocks, keys)
        self._samples[group, *keys] = sample
        self._characters += _length(sample)
        while self._samples and self._over():
            self._drop(next(iter(self._samples)))

    def forget(self, names: Iterable[str]) -> None:
        """Forget the prompts that hold a document that changed."""
        changed = frozenset(names)
        for key, sample in list(self._samples.items()):
            if any(not changed.isdisjoint(_names(block)) for block in sample.blocks):
                self._drop(key)

    def _drop(self, key: tuple[str, ...]) -> None:
        dropped = self._samples.pop(key, None)
        if dropped is not None:
            self._characters -= _length(dropped)

    def _over(self) -> bool:
        return len(self._samples) > self._max_entries or self._characters > self._max_characters

    def hottest(
        self, group: str, tree: PrefixTree, *, limit: int, max_tokens: int | None = None
    ) -> tuple[HotPrefix, ...]:
        """Return the prefixes that saved the most, each as deep as it was sent more than once.

        Args:
            group: Whose.
            tree: Of the same trust group.
            limit: How many.
            max_tokens: Bound of what they send altogether.
        """
        found: dict[tuple[Fingerprint, ...], tuple[float, HotPrefix]] = {}
        for (owner, *_), sample in self._samples.items():
            nodes = _repeated(tree.find(sample.keys)) if owner == group else []
            if nodes:
                key = sample.keys[: len(nodes)]
                found[key] = (_saved(nodes), _hot(sample, nodes))
        starts = {key[:at] for key in found for at in range(1, len(key))}
        ranked = sorted(found.items(), key=lambda item: -item[1][0])
        ranked = [(key, hot) for key, hot in ranked if key not in starts]  # sent with a longer one
        return fitting([prefix for _, (_, prefix) in ranked], limit=limit, max_tokens=max_tokens)


def _names(block: Block) -> set[str]:
    return {block.hash, *(name for document in block.documents for name in document.names)}


def _length(sample: _Sample) -> int:
    return len(sample.system) + sum(len(block.text) for block in sample.blocks)


def _repeated(nodes: Sequence[Node]) -> list[Node]:
    """Return the start of a path that was sent more than once."""
    return [node for node in nodes if node.visits > 1]


def _saved(nodes: Sequence[Node]) -> float:
    return float(sum(node.tokens * (node.visits - 1) for node in nodes))


def _hot(sample: _Sample, nodes: Sequence[Node]) -> HotPrefix:
    blocks = sample.blocks[: len(nodes) - 1]  # the first node is the head
    return HotPrefix(
        system=sample.system,
        tools=sample.tools,
        documents=tuple(document for block in blocks for document in block.documents),
        tokens=sum(node.tokens for node in nodes),
        visits=nodes[-1].visits,
    )


def fitting(
    prefixes: Sequence[HotPrefix], *, limit: int, max_tokens: int | None
) -> tuple[HotPrefix, ...]:
    """Return the first prefixes within these bounds; one that is too long leaves its place."""
    kept: list[HotPrefix] = []
    tokens = 0
    for prefix in prefixes:
        if len(kept) >= limit:
            break
        if max_tokens is not None and tokens + prefix.tokens > max_tokens:
            continue
        kept.append(prefix)
        tokens += prefix.tokens
    return tuple(kept)


# --- as plain data, for the store ----------------------------------------------------------------


def to_json(prefixes: Sequence[HotPrefix]) -> dict[str, Any]:
    """Return prefixes as plain data; each document's text is kept once."""
    documents: dict[tuple[str, str], int] = {}
    rows = [
        {
            "system": prefix.system,
            "tools": [dict(tool) for tool in prefix.tools],
            "documents": [
                documents.setdefault((d.source, d.text), len(documents)) for d in prefix.documents
            ],
            "tokens": prefix.tokens,
            "visits": prefix.visits,
        }
        for prefix in prefixes
    ]
    by_place = {(d.source, d.text): d for prefix in prefixes for d in prefix.documents}
    texts = [
        {"text": text, "source": source, "metadata": _plain(by_place[source, text].metadata)}
        for source, text in documents
    ]
    return {"v": 1, "prefixes": rows, "documents": texts}


def _plain(metadata: JsonObject) -> dict[str, Any]:
    return {k: v for k, v in metadata.items() if isinstance(v, (str, int, float))}


def from_json(data: Mapping[str, Any]) -> tuple[HotPrefix, ...]:
    """Return prefixes from plain data, none where another version wrote it."""
    if data.get("v") != 1:
        return ()
    documents = [
        Document(text=row["text"], source=row["source"], metadata=row["metadata"])
        for row in data["documents"]
    ]
    return tuple(
        HotPrefix(
            system=row["system"],
            tools=tuple(row["tools"]),
            documents=tuple(documents[at] for at in row["documents"]),
            tokens=row["tokens"],
            visits=row["visits"],
        )
        for row in data["prefixes"]
    )


# --- a change of version -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """A change of version: the new one is answered without cache until it is warm.

    Args:
        version: The new version.
        wanted: Prefixes to send ahead.
        sent: How many of them were sent.
    """

    version: str
    wanted: int
    sent: int = 0

    @property
    def warm(self) -> bool:
        """Whether every wanted prefix was sent."""
        return self.sent >= self.wanted

    def uses_cache(self, version: str) -> bool:
        """Return whether a request of this version may be answered from the cache."""
        return version != self.version or self.warm

    def after_sending(self, count: int = 1) -> Rollout:
        """Return the rollout after more prefixes were sent."""
        return replace(self, sent=min(self.wanted, self.sent + count))
