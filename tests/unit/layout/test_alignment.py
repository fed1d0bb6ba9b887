"""Blocks padded to whole KV blocks of the engine."""

from __future__ import annotations

import pytest

from ragcache.layout import LayoutPolicy, arrange
from ragcache.layout.alignment import aligned
from ragcache.layout.blocks import make_blocks
from ragcache.testing import smollm_path
from ragcache.tokenization import FileTokenizer
from ragcache.types import Document, Request

TEXTS = [f"Tariff {n}: free time is {n} days. " * (1 + n % 7) for n in range(40)]
DOCS = tuple(Document(text=text, source=f"d{n}.pdf") for n, text in enumerate(TEXTS))


@pytest.fixture(scope="module")
def count():
    return FileTokenizer(smollm_path()).count


@pytest.mark.parametrize("size", [16, 32, 48])
def test_each_block_with_its_separator_fills_whole_kv_blocks(count, size):
    policy = LayoutPolicy(align_blocks=True, block_size=size)
    plain = make_blocks(DOCS, policy=policy)
    padded = aligned(plain, policy=policy, count=count)
    assert all(count(block.text + "\n\n") % size == 0 for block in padded)
    # Control: by chance one in `size` would.
    assert sum(count(block.text + "\n\n") % size == 0 for block in plain) < len(plain) / 4
    assert all(p.text.startswith(b.text) for p, b in zip(padded, plain, strict=True))


def test_the_padding_of_a_block_does_not_depend_on_its_neighbours(count):
    policy = LayoutPolicy(align_blocks=True, block_size=16, min_prefix_tokens=0)
    texts = []
    for documents in (DOCS[:5], DOCS[4:9]):
        asked = Request(tenant="t", question="Why?", documents=documents)
        layout = arrange(asked, policy=policy, count=count)
        texts += [b.text for b in layout.blocks if b.documents[0].source == "d4.pdf"]
        assert all(b.text in layout.messages[0].text() for b in layout.blocks)
    assert texts[0] == texts[1]


def test_nothing_is_padded_unless_asked_for(count):
    policy = LayoutPolicy(block_size=16)
    plain = make_blocks(DOCS, policy=policy)
    assert aligned(plain, policy=policy, count=count) == plain


def test_a_block_that_no_padding_brings_to_a_whole_number_stays_as_it_is():
    policy = LayoutPolicy(align_blocks=True, block_size=16)
    plain = make_blocks(DOCS, policy=policy)
    assert aligned(plain, policy=policy, count=lambda text: 5) == plain
