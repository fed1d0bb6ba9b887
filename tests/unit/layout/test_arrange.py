"""From a request to what is sent."""

from __future__ import annotations

import pytest

from ragcache.errors import PromptTooLargeError
from ragcache.layout import LayoutPolicy, PrefixForest, arrange, note_difference, render
from ragcache.types import Document, Formatted, Message, Request, documents_from

POLICY = LayoutPolicy(min_prefix_tokens=0)
DOCS = tuple(Document(text=f"{name} " * 30, source=name) for name in ("one", "two", "three"))


def request(**fields) -> Request:
    return Request(**{"tenant": "t", "question": "Why?", **fields})


def test_system_and_question_are_sent_byte_for_byte():
    layout = arrange(request(system="S  \r\n{x}", question="Q  \r\n?", documents=DOCS))
    assert layout.messages[0] == Message(role="system", content="S  \r\n{x}")
    assert layout.messages[-1].text().endswith("\n\nQ  \r\n?")


def test_without_documents_the_question_is_the_whole_message():
    [message] = arrange(request()).messages
    assert message == Message(role="user", content="Why?")


def test_nothing_is_printed_for_what_is_not_there():
    documents = (Document(text=""), Document(text="  "))
    volatile = {"a": None, "b": "", "c": []}
    [message] = arrange(request(documents=documents, volatile=volatile)).messages
    assert message.text() == "Why?"


def test_what_varies_stands_once_and_behind_the_last_block():
    now = "2031-04-02T09:14:07Z"
    text = arrange(request(documents=DOCS, volatile={"now": now, "n": 3})).messages[-1].text()
    assert text.count(now) == 1
    assert text.index(now) > text.rindex("</document>")
    assert "n: 3" in text


def test_boundaries_stand_behind_the_head_and_behind_each_block():
    layout = arrange(request(system="S", documents=DOCS, tools=({"name": "a"},)), policy=POLICY)
    text = render(layout.messages, layout.tools)
    head, *ends = layout.boundaries
    assert text[head:].startswith("<|user|>")
    assert [text[:end].endswith(b.text) for end, b in zip(ends, layout.blocks, strict=True)] == [
        True
    ] * 3


def test_the_rank_note_tells_the_retrieval_order_where_blocks_were_moved():
    forest = PrefixForest()
    first = arrange(request(documents=DOCS), policy=POLICY, tree=forest.tree("g"))
    assert "relevance" not in first.messages[-1].text()
    forest.remember("g", first.plan)
    moved = arrange(request(documents=DOCS[::-1]), policy=POLICY, tree=forest.tree("g"))
    labels = ", ".join(
        str(block.label) for block in sorted(moved.blocks, key=lambda block: block.rank)
    )
    assert f"most relevant first: {labels}" in moved.messages[-1].text()
    silent = LayoutPolicy(min_prefix_tokens=0, rank_note=False)
    quiet = arrange(request(documents=DOCS[::-1]), policy=silent, tree=forest.tree("g"))
    assert "relevance" not in quiet.messages[-1].text()


def test_the_same_set_in_another_order_is_sent_with_the_same_bytes():
    forest = PrefixForest()
    silent = LayoutPolicy(min_prefix_tokens=0, rank_note=False)
    bodies = []
    for documents in (DOCS, DOCS[::-1], (DOCS[1], DOCS[0], DOCS[2])):
        layout = arrange(request(documents=documents), policy=silent, tree=forest.tree("g"))
        forest.remember("g", layout.plan)
        bodies.append(render(layout.messages))
    assert len(set(bodies)) == 1


def test_tokens_to_be_reused_are_predicted_once_something_was_sent():
    forest = PrefixForest()
    first = arrange(request(documents=DOCS), policy=POLICY, tree=forest.tree("g"))
    assert first.predicted_tokens == 0
    forest.remember("g", first.plan)
    again = arrange(request(documents=DOCS), policy=POLICY, tree=forest.tree("g"))
    assert again.predicted_tokens == sum(len(block.text) // 4 for block in again.blocks)


def test_a_prefix_below_the_minimum_is_neither_ordered_nor_counted():
    forest = PrefixForest()
    short = documents_from(["a", "b"])
    policy = LayoutPolicy(min_prefix_tokens=1000)
    forest.remember("g", arrange(request(documents=short), policy=policy).plan)
    layout = arrange(request(documents=short[::-1]), policy=policy, tree=forest.tree("g"))
    assert [block.rank for block in layout.blocks] == [0, 1]
    assert layout.predicted_tokens == 0


def words(text: str) -> int:
    return len(text.split())


def test_documents_that_do_not_fit_are_dropped_whole_from_the_low_ranked_end():
    policy = LayoutPolicy(window_tokens=300, reserve_tokens=50, ordering="sorted")
    documents = tuple(Document(text=f"d{n} " * 80, source=f"d{n}") for n in range(4))
    layout = arrange(request(documents=documents), policy=policy, count=words)
    assert layout.dropped == documents[2:]
    kept = sorted(document.source for block in layout.blocks for document in block.documents)
    assert kept == ["d0", "d1"]
    assert "2 documents did not fit" in layout.notes[0]
    assert layout.messages[-1].text().endswith("Why?")


def test_one_document_too_large_is_refused_or_cut_where_that_was_chosen():
    big = (Document(text="word " * 500),)
    policy = LayoutPolicy(window_tokens=100)
    with pytest.raises(PromptTooLargeError, match="cut_oversized"):
        arrange(request(documents=big), policy=policy, count=words)
    cutting = LayoutPolicy(window_tokens=100, cut_oversized=True)
    layouts = [arrange(request(documents=big), policy=cutting, count=words) for _ in range(2)]
    assert layouts[0].messages == layouts[1].messages
    assert words(layouts[0].messages[-1].text()) <= 100
    assert "was cut" in layouts[0].notes[0]


def test_a_document_too_large_does_not_take_the_others_along():
    documents = (Document(text="word " * 500), *DOCS)
    policy = LayoutPolicy(window_tokens=200)
    layout = arrange(request(documents=documents), policy=policy, count=words)
    assert len(layout.blocks) == 3
    assert layout.dropped == documents[:1]


# --- prompts that somebody else formatted --------------------------------------------------------


def formatted(blocks, *, head="Context:\n", separator="\n\n", tail="\n\nWhy?", **fields):
    content = head + separator.join(blocks) + tail
    return Formatted(
        messages=(Message(role="system", content="S"), Message(role="user", content=content)),
        index=1,
        head=head,
        separator=separator,
        blocks=tuple(blocks),
        tail=tail,
        **fields,
    )


def test_in_a_foreign_prompt_only_the_order_of_the_blocks_changes():
    forest = PrefixForest()
    blocks = [f"{name} " * 20 for name in ("a", "b", "c")]
    one = request(formatted=formatted(blocks), documents=documents_from(blocks))
    first = arrange(one, policy=POLICY, tree=forest.tree("g"))
    assert first.messages == one.formatted.messages
    forest.remember("g", first.plan)
    two = request(formatted=formatted(blocks[::-1]), documents=documents_from(blocks[::-1]))
    second = arrange(two, policy=POLICY, tree=forest.tree("g"))
    assert second.messages == first.messages
    assert [block.rank for block in second.blocks] == [2, 1, 0]


def test_a_foreign_prompt_that_does_not_join_to_itself_is_sent_unchanged_and_says_why():
    wrong = formatted(["a", "b"])
    wrong = Formatted(
        messages=wrong.messages, index=1, head="Contest:\n", separator="\n\n",
        blocks=("a", "b"), tail="\n\nWhy?",
    )  # fmt: skip
    layout = arrange(request(formatted=wrong, documents=documents_from("ab")), policy=POLICY)
    assert layout.messages == wrong.messages
    assert layout.notes == ("sent unchanged: cutting and joining did not give the same bytes",)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"index": 7}, "does not exist"),
        ({"blocks": ("a", "b", "c")}, "more blocks than documents"),
        ({"blocks": (), "unchanged_because": "labels by position"}, "labels by position"),
    ],
)
def test_every_reason_to_leave_a_prompt_alone_is_told(change, reason):
    good = formatted(["a", "b"])
    values = {
        "messages": good.messages, "index": 1, "head": good.head, "separator": "\n\n",
        "blocks": good.blocks, "tail": good.tail,
    }  # fmt: skip
    one = Formatted(**{**values, **change})
    layout = arrange(request(formatted=one, documents=documents_from("ab")), policy=POLICY)
    assert layout.messages == good.messages
    assert reason in layout.notes[0]


def test_documents_that_stand_elsewhere_in_a_foreign_prompt_stay_and_are_named():
    one = formatted(["a " * 20, "b " * 20], tail="\n\nSee also c.\n\nWhy?")
    documents = documents_from(["a " * 20, "b " * 20, "c"])
    policy = LayoutPolicy(ordering="sorted", min_prefix_tokens=0)
    layout = arrange(request(formatted=one, documents=documents), policy=policy)
    assert [block.rank for block in layout.blocks][2:] == [2]
    assert layout.messages[1].text().endswith("See also c.\n\nWhy?")
    assert len(layout.boundaries) == 3


def test_blocks_in_a_content_part_move_within_it():
    blocks = ["a " * 20, "b " * 20]
    parts = (
        {"type": "text", "text": "intro"},
        {"type": "text", "text": "H" + "|".join(blocks) + "T", "cache_control": {}},
    )
    one = Formatted(
        messages=(Message(role="user", content=parts),), index=0, part=1, head="H",
        separator="|", blocks=tuple(blocks), tail="T",
    )  # fmt: skip
    policy = LayoutPolicy(ordering="sorted", min_prefix_tokens=0)
    layout = arrange(request(formatted=one, documents=documents_from(blocks)), policy=policy)
    content = layout.messages[0].content
    assert content[0] == parts[0]
    assert sorted(content[1]["text"][1:-1].split("|")) == sorted(blocks)
    assert content[1]["cache_control"] == {}
    text = render(layout.messages)
    for end, block in zip(layout.boundaries[1:], layout.blocks, strict=True):
        assert text[:end].endswith(block.text)


def test_equal_blocks_in_a_foreign_prompt_are_kept_both():
    blocks = ["same " * 20, "same " * 20, "other " * 20]
    one = request(formatted=formatted(blocks), documents=documents_from(blocks))
    layout = arrange(one, policy=LayoutPolicy(ordering="sorted", min_prefix_tokens=0))
    assert layout.messages[1].text().count("same " * 20) == 2


def test_a_difference_names_the_part_and_the_byte():
    one = arrange(request(system="Now: 09:14:07", documents=DOCS))
    two = arrange(request(system="Now: 09:15:08", documents=DOCS))
    difference = note_difference(one, two)
    assert difference is not None
    assert difference.part == "system message"
    assert note_difference(one, one) is None
