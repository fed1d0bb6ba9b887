"""Which nodes a prompt's context was made of: found again by the content of the context itself.

A streamed answer calls its model when it is read, perhaps in another thread or task, and steps of
a workflow share no context variables. The text of the context is the one thing that always
arrives, so it is the key: equal contexts were made of equal texts, and nothing can be crossed.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore

from ragcache.types import Document

#: Contexts remembered, and how many characters of them.
_MAX_CONTEXTS = 2048
_MAX_CHARACTERS = 64_000_000
#: Retrievals of one run that are remembered, and the runs.
_MAX_OF_RUN = 32
_MAX_RUNS = 2048
#: How LlamaIndex joins the chunks of a context.
_JOINT = "\n\n"
#: Names under which a node's metadata may keep where it comes from.
_SOURCES = ("source", "url", "file_path", "path", "file_name")


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """A retrieved node: its text as a prompt shows it, without its metadata, and whose it is."""

    shown: str
    document: Document


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrieval:
    """What was asked for, what was found, and for which tenant where that was known."""

    query: str
    passages: tuple[Passage, ...]
    tenant: str | None = None
    #: A model wrote the query: the question condensed from the conversation.
    is_condensed: bool = False


def passage_of(node: NodeWithScore | BaseNode | str) -> Passage:
    """Return a node of any kind as a passage."""
    if isinstance(node, str):
        return Passage(shown=node, document=Document(text=node))
    inner = node.node if isinstance(node, NodeWithScore) else node
    score = node.score if isinstance(node, NodeWithScore) else None
    metadata = {str(k): v for k, v in inner.metadata.items()}
    source = next((str(metadata[k]) for k in _SOURCES if metadata.get(k)), inner.ref_doc_id or "")
    access = metadata.get("access")
    return Passage(
        shown=inner.get_content(metadata_mode=MetadataMode.LLM),
        document=Document(
            text=inner.get_content(metadata_mode=MetadataMode.NONE),
            source=source,
            id=inner.node_id,
            score=score,
            metadata=metadata,
            access=frozenset(map(str, access)) if isinstance(access, _LISTS) else frozenset(),
            aliases=(inner.ref_doc_id,) if inner.ref_doc_id else (),
        ),
    )


_LISTS = (list, tuple, set, frozenset)


class Contexts:
    """Retrievals by the text of the context that was made of them."""

    def __init__(self) -> None:
        self._found: OrderedDict[tuple[bytes, str], tuple[Retrieval, int]] = OrderedDict()
        self._characters = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._found)

    def file(self, retrieval: Retrieval, chunks: Sequence[str]) -> None:
        """Remember the contexts that may be made of these chunks: each alone, and all joined."""
        texts = [chunk.strip() for chunk in chunks if chunk.strip()]
        for text in dict.fromkeys([*texts, _JOINT.join(texts)]):
            members = _members(retrieval.passages, text)
            if members:
                self._put(
                    text,
                    Retrieval(query=retrieval.query, passages=members, tenant=retrieval.tenant),
                )

    def find(self, context: str, tenant: str | None) -> Retrieval | None:
        """Return what the context was made of, for this tenant or for nobody in particular."""
        digest = _digest(context)
        with self._lock:
            for whose in dict.fromkeys((tenant or "", "")):
                found = self._found.get((digest, whose))
                if found is not None:
                    return found[0]
        return None

    def _put(self, text: str, retrieval: Retrieval) -> None:
        key = (_digest(text), retrieval.tenant or "")
        size = sum(len(p.shown) for p in retrieval.passages)
        with self._lock:
            self._forget(key)
            self._found[key] = (retrieval, size)
            self._characters += size
            while len(self._found) > _MAX_CONTEXTS or self._characters > _MAX_CHARACTERS:
                self._forget(next(iter(self._found)))

    def _forget(self, key: tuple[bytes, str]) -> None:
        _, size = self._found.pop(key, (None, 0))
        self._characters -= size


class Runs:
    """Retrievals by the run of a workflow or agent in which they were made."""

    def __init__(self) -> None:
        self._found: OrderedDict[str, list[Retrieval]] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._found)

    def file(self, run_id: str, retrieval: Retrieval) -> None:
        """Remember a retrieval of a run."""
        with self._lock:
            retrievals = self._found.setdefault(run_id, [])
            self._found.move_to_end(run_id)
            retrievals.append(retrieval)
            del retrievals[:-_MAX_OF_RUN]
            while len(self._found) > _MAX_RUNS:
                self._found.popitem(last=False)

    def find(self, run_id: str) -> tuple[Retrieval, ...]:
        """Return the retrievals of a run, oldest first."""
        with self._lock:
            return tuple(self._found.get(run_id, ()))


def _members(passages: Sequence[Passage], text: str) -> tuple[Passage, ...]:
    return tuple(p for p in passages if (shown := p.shown.strip()) and shown in text)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.strip().encode("utf-8", "surrogatepass")).digest()


def tenant_in(tags: dict[str, Any], names: Sequence[str]) -> str | None:
    """Return the tenant that instrument tags name."""
    return next((str(tags[name]) for name in names if tags.get(name)), None)
