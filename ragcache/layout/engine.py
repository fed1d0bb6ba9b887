"""What an engine's KV cache holds, mirrored from its events, and what a prompt will find there.

Engines cache whole blocks of tokens; a block is known by its tokens and by everything before it,
the cache salt included (vLLM, docs/design/prefix_caching.md). The mirror keeps a hash chain of
its own over the same tokens, so it needs neither the engine's hash function nor its seed.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NewType, TypeAlias

#: One link of the chain: a block of tokens behind all those before it.
BlockHash = NewType("BlockHash", bytes)
#: A block's name in the engine: an integer or bytes, as the engine sends it.
EngineHash: TypeAlias = int | bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockStored:
    """The engine now holds these blocks, one behind the other."""

    block_hashes: tuple[EngineHash, ...]
    parent_block_hash: EngineHash | None
    token_ids: tuple[int, ...]
    block_size: int
    extra_keys: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockRemoved:
    """The engine evicted these blocks."""

    block_hashes: tuple[EngineHash, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AllBlocksCleared:
    """The engine's cache was reset."""


KvEvent: TypeAlias = BlockStored | BlockRemoved | AllBlocksCleared


def block_chain(
    token_ids: Sequence[int], block_size: int, *, salt: str | None = None
) -> tuple[BlockHash, ...]:
    """Return the hashes of the full blocks of a prompt, each with all before it."""
    return tuple(_links(root_hash((salt,) if salt else ()), token_ids, block_size))


def root_hash(extra_keys: Iterable[str]) -> BlockHash:
    """Return the start of a chain: prompts with other extra keys share nothing."""
    keys = "\x1f".join(extra_keys).encode("utf-8", "surrogatepass")
    return BlockHash(hashlib.sha256(b"ragcache/kv/1:" + keys).digest())


def _links(parent: BlockHash, token_ids: Sequence[int], block_size: int) -> Iterable[BlockHash]:
    for start in range(0, len(token_ids) - block_size + 1, block_size):
        tokens = array("q", token_ids[start : start + block_size]).tobytes()
        parent = BlockHash(hashlib.sha256(parent + tokens).digest())
        yield parent


class EngineMirror:
    """The blocks that an engine holds.

    Args:
        block_size: The engine's, in tokens; learned from the first event where 0.
    """

    def __init__(self, block_size: int = 0) -> None:
        self.block_size = block_size
        self._held: dict[BlockHash, int] = {}
        self._by_engine: dict[EngineHash, BlockHash] = {}
        #: Events whose parent was not known: the mirror began after the engine.
        self.orphans = 0

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, block: object) -> bool:
        return block in self._held

    def apply(self, event: KvEvent) -> None:
        """Take one event."""
        if isinstance(event, BlockStored):
            self._store(event)
        elif isinstance(event, BlockRemoved):
            for name in event.block_hashes:
                self._remove(name)
        else:
            self._held.clear()
            self._by_engine.clear()

    def cached_tokens(self, token_ids: Sequence[int], *, salt: str | None = None) -> int:
        """Return the tokens of a prompt that the engine will not compute.

        The last token of a prompt is always computed (vLLM, v1/core/kv_cache_manager.py).
        """
        if not self.block_size:
            return 0
        usable = token_ids[: max(0, len(token_ids) - 1)]
        return self.held_blocks(block_chain(usable, self.block_size, salt=salt)) * self.block_size

    def held_blocks(self, chain: Sequence[BlockHash]) -> int:
        """Return how many blocks from the start of a chain are held."""
        for at, block in enumerate(chain):
            if block not in self._held:
                return at
        return len(chain)

    def _store(self, event: BlockStored) -> None:
        self.block_size = event.block_size
        parent = self._parent(event)
        if parent is None:
            self.orphans += 1
            return
        links = _links(parent, event.token_ids, event.block_size)
        for name, block in zip(event.block_hashes, links, strict=False):
            if name not in self._by_engine:
                self._by_engine[name] = block
                self._held[block] = self._held.get(block, 0) + 1

    def _parent(self, event: BlockStored) -> BlockHash | None:
        if event.parent_block_hash is not None:
            return self._by_engine.get(event.parent_block_hash)
        return root_hash(event.extra_keys[0] if event.extra_keys else ())

    def _remove(self, name: EngineHash) -> None:
        block = self._by_engine.pop(name, None)
        if block is None:
            return
        self._held[block] -= 1
        if not self._held[block]:
            del self._held[block]


def token_ends(offsets: Sequence[tuple[int, int]], ends: Sequence[int]) -> tuple[int, ...]:
    """Return how many tokens stand before each character position of a text.

    Args:
        offsets: Character range of each token, in order.
        ends: Positions in the text, ascending.
    """
    counts, token = [], 0
    for end in ends:
        while token < len(offsets) and offsets[token][1] <= end:
            token += 1
        counts.append(token)
    return tuple(counts)


def block_ends(text: str, blocks: Sequence[str]) -> tuple[int, ...]:
    """Return where each block ends in a templated prompt, looking from left to right.

    Stops at the first block that the template changed.
    """
    ends, at = [], 0
    for block in blocks:
        found = text.find(block, at)
        if found < 0:
            break
        at = found + len(block)
        ends.append(at)
    return tuple(ends)
