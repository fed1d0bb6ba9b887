"""Contexts are found by their content, for the tenant they were made for, within bounds."""

from __future__ import annotations

from llama_index.core.schema import NodeRelationship, NodeWithScore, RelatedNodeInfo, TextNode

import llama_index_ragcache.passages as passages
from llama_index_ragcache.passages import Contexts, Retrieval, Runs, passage_of

A, B, C = "Free time is 4 days.", "Demurrage is 80 per day.\n", "Reefer plugs: hourly."


def retrieval(*texts: str, tenant: str | None = None) -> Retrieval:
    return Retrieval(query="?", passages=tuple(passage_of(t) for t in texts), tenant=tenant)


def shown(found: Retrieval | None) -> list[str] | None:
    return None if found is None else [p.shown for p in found.passages]


def test_the_joined_context_and_each_chunk_are_found() -> None:
    contexts = Contexts()
    contexts.file(retrieval(A, B, C), [A, B, C])
    assert shown(contexts.find(f"{A}\n\n{B.strip()}\n\n{C}", None)) == [A, B, C]
    assert shown(contexts.find(B, None)) == [B]
    assert contexts.find(f"{A}\n\n{C}", None) is None


def test_compacted_chunks_know_the_nodes_inside_them() -> None:
    contexts = Contexts()
    contexts.file(retrieval(A, B, C), [f"{A}\n\n{B.strip()}", C])
    assert shown(contexts.find(f"{A}\n\n{B.strip()}", None)) == [A, B]
    assert shown(contexts.find(C, None)) == [C]


def test_a_summary_that_is_no_node_is_no_document() -> None:
    contexts = Contexts()
    contexts.file(retrieval(A, B), ["It takes four days.", "It costs eighty."])
    assert len(contexts) == 0


def test_another_tenants_nodes_are_not_found() -> None:
    contexts = Contexts()
    mine = Retrieval(
        query="?",
        passages=(passage_of(TextNode(text=A, metadata={"source": "mine.md"})),),
        tenant="mine",
    )
    contexts.file(mine, [mine.passages[0].shown])
    context = mine.passages[0].shown
    assert contexts.find(context, "mine") is not None
    assert contexts.find(context, "other") is None
    assert contexts.find(context, None) is None


def test_old_contexts_are_forgotten(monkeypatch) -> None:
    monkeypatch.setattr(passages, "_MAX_CONTEXTS", 3)
    contexts = Contexts()
    for number in range(5):
        contexts.file(retrieval(f"Chunk {number}."), [f"Chunk {number}."])
    assert len(contexts) == 3
    assert contexts.find("Chunk 0.", None) is None
    assert contexts.find("Chunk 4.", None) is not None


def test_large_contexts_are_forgotten_earlier(monkeypatch) -> None:
    monkeypatch.setattr(passages, "_MAX_CHARACTERS", 100)
    contexts = Contexts()
    for letter in "abc":
        contexts.file(retrieval(letter * 40), [letter * 40])
    assert contexts.find("a" * 40, None) is None
    assert contexts.find("c" * 40, None) is not None
    contexts.file(retrieval("c" * 40), ["c" * 40])
    assert len(contexts) == 2


def test_runs_are_bounded(monkeypatch) -> None:
    monkeypatch.setattr(passages, "_MAX_RUNS", 2)
    runs = Runs()
    for number in range(4):
        runs.file(str(number), retrieval(A))
    for _ in range(100):
        runs.file("3", retrieval(B))
    assert len(runs) == 2
    assert runs.find("0") == ()
    assert len(runs.find("3")) == 32


def test_a_node_becomes_a_document_with_its_names() -> None:
    node = TextNode(
        text=A,
        id_="n-1",
        metadata={"file_path": "free.md", "access": ["finance"]},
        relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id="doc-7")},
    )
    passage = passage_of(NodeWithScore(node=node, score=0.5))
    document = passage.document
    assert passage.shown == f"file_path: free.md\naccess: ['finance']\n\n{A}"
    assert (document.text, document.source, document.id) == (A, "free.md", "n-1")
    assert set(document.names) == {"n-1", "free.md", "doc-7"}
    assert (document.score, document.access) == (0.5, frozenset({"finance"}))


def test_a_node_without_a_source_is_named_by_its_document() -> None:
    node = TextNode(
        text=A, relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id="doc-7")}
    )
    assert passage_of(node).document.source == "doc-7"
