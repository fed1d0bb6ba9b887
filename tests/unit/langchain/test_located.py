"""Documents are found in a prompt that somebody else formatted, or it is left as it is."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from ragcache.layout.located import Cut, Seen, beside_blocks, cut, locate
from ragcache.types import Message

Render = Callable[[list[Seen]], str]

WORDS = [
    "port",
    "crane",
    "fee",
    "toll",
    "ship",
    "dock",
    "cargo",
    "berth",
    "tide",
    "hull",
    "mast",
    "quay",
    "lock",
    "buoy",
    "rope",
    "anchor",
]


def documents(seed: int, count: int) -> list[Seen]:
    rng = random.Random(seed)
    texts: dict[str, None] = {}
    while len(texts) < count:
        texts[" ".join(rng.choices(WORDS, k=rng.randint(3, 30))).capitalize() + "."] = None
    return [
        Seen(text=text, metadata={"source": f"{rng.choice(WORDS)}-{at}.md", "page": at * 7 + 3})
        for at, text in enumerate(texts)
    ]


MOVABLE: dict[str, Render] = {
    "blank line": lambda ds: "\n\n".join(d.text for d in ds),
    "newline": lambda ds: "\n".join(d.text for d in ds),
    "rule": lambda ds: "\n---\n".join(d.text for d in ds),
    "source": lambda ds: "\n\n".join(f"Source: {d.metadata['source']}\n{d.text}" for d in ds),
    "source and page": lambda ds: "\n\n".join(
        f"Source: {d.metadata['source']}, page {d.metadata['page']}\n{d.text}\n(end)" for d in ds
    ),
    "source behind": lambda ds: "\n\n".join(f"{d.text}\n(from {d.metadata['source']})" for d in ds),
    "both": lambda ds: "\n\n".join(
        f"<doc source={d.metadata['source']}>{d.text}</doc p={d.metadata['page']}>" for d in ds
    ),
    "tags": lambda ds: "\n".join(f"<document>{d.text}</document>" for d in ds),
    "tags without separator": lambda ds: "".join(f"<document>{d.text}</document>" for d in ds),
    "bullets": lambda ds: "\n".join(f"- {d.text}" for d in ds),
}
FIXED: dict[str, Render] = {
    "numbered": lambda ds: "\n\n".join(f"[{at}] {d.text}" for at, d in enumerate(ds, 1)),
    "index attribute": lambda ds: "\n".join(
        f"<document index={at}>{d.text}</document>" for at, d in enumerate(ds, 1)
    ),
    "ordinal": lambda ds: "\n\n".join(f"Document {at}:\n{d.text}" for at, d in enumerate(ds, 1)),
}


def prompt(context: str, seed: int) -> str:
    heads = ["Use the context.\n\n", "", "Context:\n", "Answer from these documents:\n\n"]
    return f"{heads[seed % 4]}{context}\n\nQuestion: what is the toll {seed}?\nAnswer:"


@pytest.mark.parametrize("rendering", MOVABLE)
def test_every_movable_rendering_is_cut_and_joined_again(rendering: str) -> None:
    for seed in range(100):
        docs = documents(seed, 1 + seed % 9)
        text = prompt(MOVABLE[rendering](docs), seed)
        found = cut(text, docs)
        assert isinstance(found, Cut), (rendering, seed, found)
        assert found.joined() == text
        assert [d.text for d in found.documents] == [d.text for d in docs]
        for block, document in zip(found.blocks, docs, strict=True):
            assert document.text in block


@pytest.mark.parametrize("rendering", MOVABLE)
def test_moved_blocks_read_as_if_they_had_been_rendered_in_that_order(rendering: str) -> None:
    """The strongest form: permuting the cut equals rendering the permuted documents."""
    for seed in range(100):
        docs = documents(seed, 2 + seed % 8)
        found = cut(prompt(MOVABLE[rendering](docs), seed), docs)
        assert isinstance(found, Cut)
        order = list(range(len(docs)))
        random.Random(seed).shuffle(order)
        moved = found.head + found.separator.join(found.blocks[i] for i in order) + found.tail
        assert moved == prompt(MOVABLE[rendering]([docs[i] for i in order]), seed)


@pytest.mark.parametrize("rendering", FIXED)
def test_labels_that_come_from_the_place_leave_the_prompt_as_it_is(rendering: str) -> None:
    for seed in range(100):
        docs = documents(seed, 2 + seed % 8)
        found = cut(prompt(FIXED[rendering](docs), seed), docs)
        assert isinstance(found, str), (rendering, seed, found)


@pytest.mark.parametrize("rendering", FIXED)
def test_a_single_document_is_found_whatever_its_label(rendering: str) -> None:
    docs = documents(1, 1)
    found = cut(prompt(FIXED[rendering](docs), 1), docs)
    assert isinstance(found, Cut)
    assert len(found.blocks) == 1


def test_repr_of_a_list_is_left_as_it_is() -> None:
    for seed in range(50):
        docs = documents(seed, 3)
        text = prompt(repr([f"Doc(page={d.metadata['page']}, text={d.text!r})" for d in docs]), 1)
        found = cut(text, docs)
        assert isinstance(found, str) or found.joined() == text


def test_cleaned_text_is_not_found() -> None:
    docs = [Seen(text="Port   A\n\nfee", metadata={}), Seen(text="Port   B\n\nfee", metadata={})]
    text = prompt("\n\n".join(" ".join(d.text.split()) for d in docs), 1)
    assert isinstance(cut(text, docs), str)


def test_a_document_inside_another_is_not_cut_out_of_it() -> None:
    docs = [
        Seen(text="The fee is 80.", metadata={}),
        Seen(text="The fee is 80. After a week it is 120.", metadata={}),
        Seen(text="No fee on Sundays.", metadata={}),
    ]
    text = prompt("\n\n".join(d.text for d in docs), 2)
    found = cut(text, docs)
    assert isinstance(found, Cut)
    assert found.blocks == tuple(d.text for d in docs)


def test_a_document_quoted_in_the_question_is_no_block() -> None:
    docs = documents(3, 3)
    quoted = Seen(text="Quay anchors are free of charge here.", metadata={})
    context = "\n\n".join(d.text for d in docs)
    text = f"{context}\n\nQuestion: is it true that {quoted.text} Say yes or no."
    found = cut(text, [*docs, quoted])
    assert isinstance(found, Cut)
    assert found.blocks == tuple(d.text for d in docs)
    assert quoted.text in found.tail


def test_a_short_chunk_whose_words_stand_ahead_too_is_found_among_its_own() -> None:
    seen = [Seen(text=text, metadata={}) for text in ("the crane is idle", "tide", "no berth")]
    text = f"Answer by the tide table.\n\n{chr(10).join(d.text for d in seen)}\n\nWhen?"
    found = cut(text, seen)
    assert isinstance(found, Cut)
    assert found.blocks == ("the crane is idle", "tide", "no berth")


def test_the_same_chunk_twice_is_two_blocks() -> None:
    one, two = documents(5, 2)
    text = prompt("\n\n".join(d.text for d in (one, two, one)), 2)
    found = cut(text, [one, two, one])
    assert isinstance(found, Cut)
    assert found.blocks == (one.text, two.text, one.text)


def test_an_unknown_chunk_is_never_moved() -> None:
    docs = documents(7, 9)
    text = prompt("\n\n".join(d.text for d in docs), 2)
    for unknown in range(9):
        found = cut(text, [d for at, d in enumerate(docs) if at != unknown])
        if isinstance(found, Cut):
            assert found.joined() == text
            assert not any(docs[unknown].text in block for block in found.blocks)
            assert docs[unknown].text in found.head + found.tail
    middle = cut(text, [d for at, d in enumerate(docs) if at != 4])
    assert isinstance(middle, str)


def test_documents_from_the_same_source_share_their_metadata() -> None:
    docs = [
        Seen(text=d.text, metadata={"source": "tariff.pdf", "page": 1}) for d in documents(9, 5)
    ]
    for behind in (True, False):
        parts = [
            f"{d.text}\n(from {d.metadata['source']})" if behind else f"From tariff.pdf:\n{d.text}"
            for d in docs
        ]
        text = prompt("\n\n".join(parts), 1)
        found = cut(text, docs)
        assert isinstance(found, Cut)
        assert found.joined() == text


def test_nothing_retrieved_stands_in_the_prompt() -> None:
    assert cut("Hello", documents(1, 3)) == "no document of this run stands in the prompt"
    assert isinstance(cut("Hello", []), str)
    assert isinstance(cut("Hello", [Seen(text=" \n", metadata={})]), str)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("Read: A crane.\n\nWhat is it?", "What is it?"),
        ("What is it? Read: A crane.", "What is it? Read:"),
        (("Read: A crane.\n", "What is it?"), "What is it?"),
        (("What is it?", "Read: A crane.\n"), "What is it?Read:"),
    ],
)
def test_what_is_asked_stands_behind_the_blocks_or_else_ahead_of_them(content, said) -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:,"}}
    if not isinstance(content, str):
        one, two = ({"type": "text", "text": text} for text in content)
        content = (one, picture, two)
    message = Message(role="user", content=content)
    formatted, _ = locate([message], [Seen(text="A crane.", metadata={})])
    assert formatted.blocks == ("A crane.",)
    assert beside_blocks(formatted, 0).strip() == said
