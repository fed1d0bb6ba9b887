"""Labels in answers, in streams and in tool calls, mapped back to the caller's documents."""

from __future__ import annotations

import json

import pytest

from ragcache.layout import (
    CitationStream,
    LayoutPolicy,
    arrange,
    citations,
    cited_in_tool_calls,
    cited_labels,
    map_tool_arguments,
)
from ragcache.types import Document, Request

DOCUMENTS = tuple(Document(text=f"text {name}", source=name) for name in ("z", "a", "m"))
LAYOUT = arrange(
    Request(tenant="t", question="?", documents=DOCUMENTS),
    policy=LayoutPolicy(ordering="sorted", min_prefix_tokens=0),
)
LABEL = {block.sources[0]: str(block.label) for block in LAYOUT.blocks}
RANK = {"z": 0, "a": 1, "m": 2}


@pytest.mark.parametrize("form", ["[{}]", "[ {} ]", "[^{}]", "【{}】", "[{}, 99999]", "[1; {}]"])
def test_a_label_in_brackets_is_mapped_to_its_document(form):
    found = citations(f"Fee is 80 {form.format(LABEL['m'])}.", LAYOUT)
    assert list(found) == [LABEL["m"]]
    assert found[LABEL["m"]].sources == ("m",)
    assert found[LABEL["m"]].ranks == (2,)


def test_numbers_that_are_no_labels_are_no_citations():
    assert citations(f"In [2024] it was {LABEL['a']} or [80].", LAYOUT) == {}


def test_labels_come_in_the_order_of_their_first_use():
    text = f"[{LABEL['z']}] [{LABEL['a']}, {LABEL['z']}]"
    assert list(citations(text, LAYOUT)) == [LABEL["z"], LABEL["a"]]
    assert cited_labels("[1][2, 3] [1]") == ["1", "2", "3"]


def test_a_merged_duplicate_maps_one_label_to_both_sources():
    twice = (Document(text="same", source="b"), Document(text="same", source="a"))
    layout = arrange(Request(tenant="t", question="?", documents=twice))
    [found] = citations(f"[{layout.blocks[0].label}]", layout, twice).values()
    assert found.sources == ("b", "a")
    assert found.ranks == (0, 1)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_a_stream_finds_the_same_labels_however_it_is_cut(size):
    text = f"One [{LABEL['z']}], two [{LABEL['a']}, {LABEL['m']}] [12] and an open [ bracket."
    stream = CitationStream(LAYOUT)
    told = [
        citation.label
        for start in range(0, len(text), size)
        for citation in stream.feed(text[start : start + size])
    ]
    assert told == list(stream.found) == list(citations(text, LAYOUT))


def test_a_stream_tells_a_citation_with_the_piece_that_completes_it():
    stream = CitationStream(LAYOUT)
    assert stream.feed(f"see [{LABEL['z'][:2]}") == ()
    [citation] = stream.feed(f"{LABEL['z'][2:]}]")
    assert citation.sources == ("z",)
    assert stream.feed(f"again [{LABEL['z']}]") == ()


def test_labels_in_tool_arguments_become_the_callers_numbers():
    arguments = {"block_id": int(LABEL["m"]), "block_ids": [LABEL["z"], 7], "amount": LABEL["a"]}
    mapped = map_tool_arguments(arguments, LAYOUT)
    assert mapped == {"block_id": 3, "block_ids": ["1", 7], "amount": LABEL["a"]}
    assert arguments["block_id"] == int(LABEL["m"])


def test_other_argument_names_can_be_chosen():
    mapped = map_tool_arguments({"ref": LABEL["a"]}, LAYOUT, keys=frozenset({"ref"}))
    assert mapped == {"ref": "2"}


@pytest.mark.parametrize("shape", ["openai", "anthropic", "langchain"])
def test_labels_cited_through_tools_are_found_in_every_shape(shape):
    arguments = {"block_id": int(LABEL["a"])}
    call = {
        "openai": {"function": {"name": "cite", "arguments": json.dumps(arguments)}},
        "anthropic": {"type": "tool_use", "input": arguments},
        "langchain": {"name": "cite", "args": arguments},
    }[shape]
    found = cited_in_tool_calls([call], LAYOUT)
    assert list(found) == [LABEL["a"]]
