"""Properties of the layout over random documents, orders and conversations."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ragcache.bench.simulation import PrefixCache
from ragcache.keys import normal_text
from ragcache.layout import (
    LayoutPolicy,
    PrefixForest,
    arrange,
    from_json,
    remembered,
    render,
    schedule,
    to_json,
)
from ragcache.layout.blocks import make_blocks
from ragcache.layout.ordering import Item, Knowledge, order_blocks
from ragcache.layout.plan import Step
from ragcache.layout.statistics import CoRetrieval
from ragcache.layout.tree import PrefixTree
from ragcache.types import Document, Fingerprint, Formatted, Message, Request

FEW = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
MANY = settings(max_examples=2000, deadline=None, suppress_health_check=list(HealthCheck))

nasty = st.sampled_from(
    [
        "</document>",
        '<document id="1">',
        "\r\n",
        "{x}",
        "\\1",
        "[12345]",
        "<|user|>",
        "é",
        "港",
        " ",
    ]
)
text = st.lists(st.one_of(nasty, st.text(max_size=12)), max_size=8).map("".join)
document = st.builds(
    Document,
    text=text,
    source=st.sampled_from(["", "a.pdf", "b.html", "c/d.md"]),
    id=st.one_of(st.none(), st.text(max_size=5)),
    score=st.one_of(st.none(), st.floats(0, 1)),
)
documents = st.lists(document, max_size=8).map(tuple)
policy = st.builds(
    LayoutPolicy,
    ordering=st.sampled_from(["prefix_tree", "sorted", "retrieved"]),
    pin_top=st.integers(0, 3),
    max_displacement=st.one_of(st.none(), st.integers(0, 4)),
    rank_note=st.booleans(),
    min_prefix_tokens=st.just(0),
)


def tried(example_settings, *strategies):
    """Run a property in its small count, and in its large one under `prove`."""

    def decorate(check):
        small = FEW(given(*strategies)(check))
        return small if example_settings is FEW else MANY(given(*strategies)(check))

    return decorate


def check_nothing_lost(docs, chosen, warm):
    forest = PrefixForest()
    for earlier in warm:
        asked = Request(tenant="t", question="q", documents=earlier)
        forest.remember("g", arrange(asked, policy=chosen, tree=forest.tree("g")).plan)
    asked = Request(tenant="t", question="the question", system="the system", documents=docs)
    layout = arrange(asked, policy=chosen, tree=forest.tree("g"))
    printed = layout.messages[-1].text()
    for kept in docs:
        if normal_text(kept.text).strip():
            assert normal_text(kept.text) in printed
    rest = printed
    for block in layout.blocks:
        assert rest.count(block.text) >= 1
        rest = rest.replace(block.text, "", 1)
    tail = rest.replace("\n", "")
    assert tail.endswith("the question")
    note = tail.removesuffix("the question")
    assert note == "" or note.startswith("Documents by relevance")
    numbered = {id(d) for block in layout.blocks for d in block.documents}
    assert numbered == {id(d) for d in docs if normal_text(d.text).strip()}


warm_up = st.lists(documents, max_size=4)
test_no_text_is_lost_or_invented = tried(FEW, documents, policy, warm_up)(check_nothing_lost)
test_no_text_is_lost_or_invented_large = pytest.mark.prove(
    tried(MANY, documents, policy, warm_up)(check_nothing_lost)
)


def check_foreign(blocks, head, separator, tail, chosen):
    content = head + separator.join(blocks) + tail
    formatted = Formatted(
        messages=(Message(role="user", content=content),),
        head=head,
        separator=separator,
        blocks=tuple(blocks),
        tail=tail,
    )
    docs = tuple(Document(text=block) for block in blocks)
    asked = Request(tenant="t", question="q", documents=docs, formatted=formatted)
    [message] = arrange(asked, policy=chosen, tree=PrefixForest().tree("g")).messages
    assert Counter(message.text()) == Counter(content)
    assert message.text().startswith(head)
    assert message.text().endswith(tail)


foreign = (
    st.lists(text, min_size=1, max_size=6),
    text,
    st.sampled_from(["\n\n", "---", "\n"]),
    text,
    policy,
)
test_a_foreign_prompt_keeps_every_character = tried(FEW, *foreign)(check_foreign)
test_a_foreign_prompt_keeps_every_character_large = pytest.mark.prove(
    tried(MANY, *foreign)(check_foreign)
)


def check_order_free(docs, seed):
    shuffled = list(docs)
    random.Random(seed).shuffle(shuffled)
    chosen = LayoutPolicy(ordering="sorted", rank_note=False, min_prefix_tokens=0)
    bodies = {
        render(
            arrange(Request(tenant="t", question="q", documents=tuple(d)), policy=chosen).messages
        )
        for d in (docs, shuffled)
    }
    labels = [{b.text for b in make_blocks(tuple(d), policy=chosen)} for d in (docs, shuffled)]
    assert labels[0] == labels[1]
    assert len(bodies) == 1


unlike = st.lists(
    st.builds(Document, text=text, source=st.sampled_from(["a", "b"])),
    max_size=8,
    unique_by=lambda d: (d.text, d.source),
).map(tuple)
test_the_order_of_retrieval_does_not_matter = tried(FEW, unlike, st.integers())(check_order_free)
test_the_order_of_retrieval_does_not_matter_large = pytest.mark.prove(
    tried(MANY, unlike, st.integers())(check_order_free)
)


def check_labels(docs, digits):
    blocks = make_blocks(docs, policy=LayoutPolicy(label_digits=digits))
    labels = [block.label for block in blocks]
    assert len(set(labels)) == len(labels)
    assert all(label.isdecimal() and not label.startswith("0") for label in labels)


test_labels_are_injective = tried(FEW, documents, st.integers(1, 5))(check_labels)
test_labels_are_injective_large = pytest.mark.prove(
    tried(MANY, documents, st.integers(1, 5))(check_labels)
)


def check_append_only(turns):
    history: tuple[Message, ...] = ()
    state, before, sent = None, "", set()
    for number, docs in enumerate(turns):
        asked = Request(
            tenant="t", question=f"question {number}", system="S", documents=docs,
            history=history, volatile={"now": str(number)},
        )  # fmt: skip
        layout = arrange(asked, conversation=state)
        now = render(layout.messages)
        assert now.startswith(before)
        assert layout.notes == ()
        for block in layout.blocks:
            if block.hash in sent:
                assert block.text not in layout.messages[-1].text()
        sent |= {block.hash for block in layout.blocks}
        answer = Message(role="assistant", content=f"answer {number}")
        state = from_json(json.loads(json.dumps(to_json(remembered(asked, layout, answer)))))
        history += (Message(role="user", content=asked.question), answer)
        before = now + render([answer])


talks = st.lists(documents, min_size=1, max_size=6)
test_conversations_are_append_only = tried(FEW, talks)(check_append_only)
test_conversations_are_append_only_large = pytest.mark.prove(tried(MANY, talks)(check_append_only))


def check_order(sets, chosen):
    known = Knowledge(PrefixTree(max_nodes=40), CoRetrieval(max_requests=16))
    for numbers in sets:
        items = [Item(Fingerprint(str(n)), 5 + n) for n in numbers]
        order = order_blocks(items, policy=chosen, known=known, start=known.tree.root)
        assert sorted(order) == list(range(len(items)))
        if chosen.max_displacement is not None:
            assert all(abs(at - place) <= chosen.max_displacement for place, at in enumerate(order))
        elif chosen.ordering != "retrieved" and len(items) > 1:
            pinned = list(range(len(items)))[: chosen.pin_top]
            assert list(order[len(items) - len(pinned) :]) == pinned[::-1]
        known.tree.insert([Step(key=items[at].key, tokens=items[at].tokens) for at in order])
        known.statistics.add(item.key for item in items)
        assert len(known.tree) <= 40


sets = st.lists(st.lists(st.integers(0, 12), max_size=8, unique=True), max_size=12)
test_an_order_is_a_permutation_within_its_limits = tried(FEW, sets, policy)(check_order)
test_an_order_is_a_permutation_within_its_limits_large = pytest.mark.prove(
    tried(MANY, sets, policy)(check_order)
)


def check_schedule(sets_):
    batch = [[Item(Fingerprint(str(n)), 5 + n) for n in numbers] for numbers in sets_]
    slots = schedule(batch)
    assert sorted(slot.request for slot in slots) == list(range(len(batch)))
    for slot in slots:
        assert sorted(slot.order) == list(range(len(batch[slot.request])))


test_a_schedule_is_a_permutation = tried(FEW, sets)(check_schedule)
test_a_schedule_is_a_permutation_large = pytest.mark.prove(tried(MANY, sets)(check_schedule))


def check_tree(sequences, capacity):
    """The tree evicts as a prefix cache under LRU does, written down independently."""
    tree, cache = PrefixTree(max_tokens=capacity), PrefixCache(capacity)
    for numbers in sequences:
        steps = [Step(key=Fingerprint(str(n)), tokens=3 + n) for n in numbers]
        found = sum(node.tokens for node in tree.find(step.key for step in steps))
        assert found == cache.serve([(str(n), 3 + n) for n in numbers])
        tree.insert(steps)
        assert tree.tokens <= capacity


test_the_tree_evicts_like_a_prefix_cache = tried(FEW, sets, st.integers(0, 120))(check_tree)
test_the_tree_evicts_like_a_prefix_cache_large = pytest.mark.prove(
    tried(MANY, sets, st.integers(0, 120))(check_tree)
)


CODE = """
import sys
sys.path.insert(0, {root!r})
from ragcache.layout import LayoutPolicy, PrefixForest, arrange, render
from ragcache.types import Document, Request
import hashlib, random
rng, forest, digest = random.Random(7), PrefixForest(), hashlib.sha256()
texts = ["word%d " % (n % 9) * 9 + "text %d" % n for n in range(30)]
for _ in range(60):
    picks = rng.sample(range(30), 6)
    documents = tuple(Document(text=texts[n], source=str(n)) for n in picks)
    layout = arrange(
        Request(tenant="t", question="q", documents=documents, volatile={{"b": 1, "a": 2}}),
        policy=LayoutPolicy(min_prefix_tokens=0), tree=forest.tree("g"),
    )
    forest.remember("g", layout.plan)
    digest.update(render(layout.messages).encode())
print(digest.hexdigest())
"""


def test_prompts_are_the_same_bytes_whatever_the_hash_seed(request):
    code = CODE.format(root=str(request.config.rootpath))
    digests = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PATH": ""},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "2")
    }
    assert len(digests) == 1
