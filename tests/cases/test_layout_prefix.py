"""Field cases L01 to L13: what breaks a prefix, at the level of the layout."""

from __future__ import annotations

import copy
import json
import subprocess
import sys

import pytest

from ragcache.errors import PromptTooLargeError
from ragcache.keys import Identity, keys_of, scope_of
from ragcache.layout import (
    LayoutPolicy,
    PrefixForest,
    arrange,
    citations,
    labels_of,
    marked,
    note_difference,
    plan_breakpoints,
    remembered,
    render,
)
from ragcache.layout.canonical import canonical_tools
from ragcache.providers import find_rules
from ragcache.types import Document, Message, Request

POLICY = LayoutPolicy(min_prefix_tokens=0)
SILENT = LayoutPolicy(min_prefix_tokens=0, rank_note=False)
CLAUDE = find_rules("anthropic", "claude-sonnet-4-5")
D = {n: Document(text=f"Document {n} speaks of {n}. " * 9, source=f"{n}.pdf") for n in range(1, 6)}


def request(**fields) -> Request:
    return Request(**{"tenant": "t", "question": "What is the demurrage fee?", **fields})


def send(forest: PrefixForest, asked: Request, policy: LayoutPolicy = POLICY, **fields):
    layout = arrange(asked, policy=policy, tree=forest.tree("g"), **fields)
    forest.remember("g", layout.plan)
    return layout


def body(layout) -> str:
    return render(layout.messages, layout.tools)


def common(one: str, other: str) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("2031-04-02T09:14:07Z", "2031-04-02T09:15:08Z"),
        ("2031-04-02T23:59:59Z", "2031-04-03T00:00:01Z"),
    ],
)
def test_L01_a_declared_clock_stands_behind_the_documents(first, second):
    forest = PrefixForest()
    system = "You are Orla, a freight clerk.\nAnswer only from the documents."
    documents = (D[1], D[2], D[3])
    layouts = [
        send(forest, request(system=system, documents=documents, volatile={"now": now}))
        for now in (first, second)
    ]
    one, two = map(body, layouts)
    end = layouts[0].boundaries[-1]
    assert common(one, two) >= end
    for text, now in ((one, first), (two, second)):
        assert text.count(now) == 1
        assert text.index(now) >= end


def test_L01_an_undeclared_clock_is_sent_as_it_is_and_reported():
    forest = PrefixForest()

    def system(now: str) -> str:
        return f"You are Orla, a freight clerk.\nNow: 2031-04-02T{now}Z\nAnswer only from the docs."

    first = send(forest, request(system=system("09:14:07"), documents=(D[1],)))
    second = arrange(request(system=system("09:15:08"), documents=(D[1],)), policy=POLICY)
    assert second.messages[0].content == system("09:15:08")
    for difference in (note_difference(first, second), forest.tree("g").difference(second)):
        assert difference is not None
        assert difference.part == "system message"
        assert difference.offset == system("09:14:07").index("09:14:07") + 4


def test_L02_order_rank_and_score_do_not_reach_the_prompt():
    def retrieved(*rows) -> tuple[Document, ...]:
        return tuple(Document(text=D[n].text, source=D[n].source, score=score) for n, score in rows)

    calls = [
        retrieved((3, 0.81), (1, 0.80), (4, 0.77), (2, 0.70)),
        retrieved((1, 0.812), (2, 0.79), (3, 0.78), (4, 0.701)),
    ]
    quiet, loud = PrefixForest(), PrefixForest()
    silent = [send(quiet, request(documents=call), SILENT) for call in calls]
    noted = [send(loud, request(documents=call), POLICY) for call in calls]
    assert body(silent[0]) == body(silent[1])
    one, two = map(body, noted)
    assert one != two
    assert common(one, two) >= noted[0].boundaries[-1]
    for text in map(body, (*silent, *noted)):
        assert not any(word in text for word in ("0.81", "0.812", "score"))
    assert [block.documents[0].score for block in sorted(noted[1].blocks, key=lambda b: b.rank)] == [
        0.812, 0.79, 0.78, 0.701,
    ]  # fmt: skip


RATE = {
    "type": "function",
    "function": {
        "name": "rate_quote",
        "parameters": {
            "type": "object",
            "properties": {
                "speed": {"enum": ["urgent", "normal", "slow"]},
                "place": {"oneOf": [{"type": "string"}, {"type": "array"}]},
                "cache_control": {"type": "boolean"},
            },
            "required": ["speed", "cache_control"],
        },
    },
}
TRACK = {
    "type": "function",
    "function": {
        "name": "track_box",
        "parameters": {"type": "object", "properties": {"id": {"type": "string"}}},
    },
}


def shuffled(tool: dict) -> dict:
    parameters = tool["function"]["parameters"]
    turned = {key: parameters[key] for key in reversed(list(parameters))}
    if "required" in turned:
        turned["required"] = turned["required"][::-1]
    return {
        "function": {"parameters": turned, "name": tool["function"]["name"]},
        "type": "function",
    }


def wire(tools) -> str:
    return json.dumps([dict(tool) for tool in canonical_tools(tools)])


def test_L03_tools_have_one_order_and_one_spelling():
    first, second = wire([TRACK, RATE]), wire([shuffled(RATE), shuffled(TRACK)])
    assert first == second
    sent = json.loads(first)[0]["function"]["parameters"]["properties"]
    assert sent["speed"]["enum"] == ["urgent", "normal", "slow"]
    assert sent["place"]["oneOf"] == [{"type": "string"}, {"type": "array"}]
    assert sent["cache_control"] == {"type": "boolean"}

    third = copy.deepcopy(RATE)
    third["function"]["parameters"]["properties"]["speed"]["enum"] = ["normal", "urgent", "slow"]
    assert wire([TRACK, third]) != first

    fourth = copy.deepcopy(RATE)
    del fourth["function"]["parameters"]["properties"]["cache_control"]
    keys = []
    for tools in ([TRACK, RATE], [shuffled(RATE), TRACK], [TRACK, fourth]):
        asked = request(tools=tuple(tools))
        keys.append(keys_of(asked, scope_of(asked, Identity(target="x", model="m"))).exact)
    assert keys[0] != keys[2]

    marked_tools = [{**TRACK, "cache_control": {"type": "ephemeral"}}, RATE]
    assert [t["function"]["name"] for t in canonical_tools(marked_tools)] == [
        "track_box",
        "rate_quote",
    ]


def test_L04_an_old_turn_keeps_its_bytes_when_the_marker_moves_on():
    def bare(message) -> object:
        if isinstance(message.content, str):
            return message.content
        return [{k: v for k, v in part.items() if k != "cache_control"} for part in message.content]

    def sent(layout) -> list[Message]:
        plan = plan_breakpoints(layout, rules=CLAUDE, tree=PrefixForest().tree("g"), mode="always")
        return list(marked(layout, plan.breakpoints, CLAUDE)[0])

    asked = request(system="S", question="list the ports\n", documents=(D[1],))
    first = arrange(asked, policy=POLICY)
    answer = Message(role="assistant", content="A1")
    state = remembered(asked, first, answer)
    history = (Message(role="user", content="list the ports\n"), answer)
    second = arrange(
        request(system="S", question="U2", history=history, documents=(D[2],)),
        policy=POLICY,
        conversation=state,
    )
    one, two = sent(first), sent(second)
    assert any("cache_control" in part for part in one[1].content)
    assert any("cache_control" in part for part in two[3].content)
    assert bare(one[1]) == bare(two[1])
    assert two[1].text().endswith("list the ports\n")

    blocks = [
        arrange(request(documents=(Document(text=text),)), policy=policy).blocks[0]
        for policy in (POLICY, LayoutPolicy(normalise_newlines=False))
        for text in ("Port A\r\nPort B\r\n", "Port A\nPort B\n")
    ]
    assert (blocks[0].text, blocks[0].label) == (blocks[1].text, blocks[1].label)
    assert "\r" not in blocks[0].text
    assert "Port A\r\nPort B\r\n" in blocks[2].text
    assert "Port A\nPort B\n" in blocks[3].text


def test_L06_documents_stay_in_their_turn():
    history: tuple[Message, ...] = ()
    state, bodies, layouts = None, [], []
    turns = [("Q1", (D[1], D[2])), ("Q2", (D[2], D[5])), ("Q3", ())]
    for number, (question, documents) in enumerate(turns, start=1):
        asked = request(
            system="S", question=question, documents=documents, history=history,
            volatile={"now": f"09:1{number}"},
        )  # fmt: skip
        layout = arrange(asked, policy=POLICY, conversation=state)
        answer = Message(role="assistant", content=f"A{number}")
        state = remembered(asked, layout, answer)
        history += (Message(role="user", content=question), answer)
        bodies.append(body(layout) + render([answer]))
        layouts.append(layout)
    assert bodies[1].startswith(bodies[0])
    assert bodies[2].startswith(bodies[1])
    assert bodies[1].count(D[2].text.strip()) == 1
    newest = layouts[1].messages[-1].text()
    assert newest.index(D[5].text.strip()) < newest.index("Q2")
    assert bodies[0].index("Q1") < bodies[1].index(D[5].text.strip())
    assert layouts[2].messages[-1].text() == "now: 09:13\n\nQ3"
    assert [m.role for m in layouts[2].messages] == ["system", *["user", "assistant"] * 2, "user"]


def test_L08_duplicates_are_merged_and_overlaps_are_left_alone():
    x1 = Document(text="Free time is 4 days.", source="tariff.pdf")
    y1 = Document(text="Free time is 4 days. After that 80 per day.", source="tariff.pdf")
    x2 = Document(text="Free time is 4 days.", source="old.html")
    layout = arrange(request(documents=(x1, y1, x2)), policy=POLICY)
    assert len(layout.blocks) == 2
    block = next(b for b in layout.blocks if len(b.documents) == 2)
    assert block.sources == ("tariff.pdf", "old.html")
    alone = arrange(request(documents=(x2,)), policy=POLICY).blocks[0]
    assert block.label == alone.label
    assert "Free time is 4 days. After that 80 per day." in body(layout)
    assert body(layout).count("Free time is 4 days.") == 2


def test_L09_ids_and_metadata_order_do_not_matter():
    def chunk(id_, metadata) -> Document:
        return Document(text="Free time is 4 days.", source="tariff.pdf", id=id_, metadata=metadata)

    first = chunk("n-81f3", {"title": "Tariff", "page": 2, "last_accessed_date": "2031-04-01"})
    second = chunk("n-c20a", {"page": 2, "last_accessed_date": "2031-04-02", "title": "Tariff"})
    texts = {
        body(arrange(request(documents=(chunk_,)), policy=POLICY)) for chunk_ in (first, second)
    }
    [text] = texts
    assert "last_accessed" not in text
    assert "2031-04" not in text
    assert text.index("Tariff") < text.index('page="2"')
    code = (
        "from ragcache.layout import arrange\n"
        "from ragcache.types import Document, Request\n"
        "d = Document(text='Free time is 4 days.', source='tariff.pdf')\n"
        "print(arrange(Request(tenant='t', question='?', documents=(d,))).blocks[0].label)"
    )
    labels = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PATH": ""},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert labels == {str(arrange(request(documents=(first,))).blocks[0].label)}


def test_L10_documents_are_not_templates():
    text = (
        "Set {REGION} and {{tenant}}; {% for x in y %}{{ 7*7 }}{% endfor %}; "
        "cost ${PRICE}, 100%s, \\1, {0} {}"
    )
    question, system = "What does {REGION} do?", 'JSON like {"a": 1} is fine.'
    layout = arrange(
        request(system=system, question=question, documents=(Document(text=text),)), policy=POLICY
    )
    printed = body(layout)
    for whole in (text, question, system):
        assert printed.count(whole) == 1
    assert "49" not in printed.replace(str(layout.blocks[0].label), "")


def test_L12_labels_point_to_the_same_document_whatever_the_order():
    named = {n: Document(text=f"text of {n}", source=n) for n in ("Dz", "Da", "Dm")}
    policy = LayoutPolicy(ordering="sorted", min_prefix_tokens=0)
    first = arrange(request(documents=tuple(named[n] for n in ("Dz", "Da", "Dm"))), policy=policy)
    label = next(str(b.label) for b in first.blocks if b.sources == ("Dm",))
    found = citations(f"Fee is 80 [{label}].", first)
    assert found[label].sources == ("Dm",)
    assert found[label].ranks == (2,)
    later = arrange(request(documents=tuple(named[n] for n in ("Dm", "Dz", "Da"))), policy=policy)
    assert citations(f"Fee is 80 [{label}].", later)[label].ranks == (0,)
    printed = {name for name in labels_of(first) if f'id="{name}"' in body(first)}
    assert printed == set(labels_of(first))
    merged = arrange(request(documents=(named["Da"], Document(text="text of Da", source="Db"))))
    assert citations(f"[{merged.blocks[0].label}]", merged).popitem()[1].sources == ("Da", "Db")


def words(text: str) -> int:
    return len(text.split())


def test_L13_documents_larger_than_the_window_are_dropped_whole():
    policy = LayoutPolicy(
        window_tokens=1000, reserve_tokens=100, block_overhead_tokens=5, ordering="sorted",
        min_prefix_tokens=0, print_source=False,
    )  # fmt: skip
    documents = {n: Document(text=f"w{n} " * 250, source=f"d{n}") for n in range(1, 6)}
    asked = request(
        system="s " * 50,
        question="q " * 29 + "q?",
        documents=tuple(documents[n] for n in (3, 1, 5, 2, 4)),
    )
    layout = arrange(asked, policy=policy, count=words)
    kept = {document.source for block in layout.blocks for document in block.documents}
    assert kept == {"d1", "d3", "d5"}
    assert [document.source for document in layout.dropped] == ["d2", "d4"]
    assert layout.messages[0].content == asked.system
    assert layout.messages[-1].text().endswith(asked.question)
    assert body(arrange(asked, policy=policy, count=words)) == body(layout)
    assert words(body(layout)) <= 900

    huge = request(documents=(Document(text="word " * 5000),))
    with pytest.raises(PromptTooLargeError):
        arrange(huge, policy=policy, count=words)
    cutting = LayoutPolicy(window_tokens=1000, reserve_tokens=100, cut_oversized=True)
    cut = arrange(huge, policy=cutting, count=words)
    assert words(body(cut)) <= 900 + 3
    assert any("cut" in note for note in cut.notes)
