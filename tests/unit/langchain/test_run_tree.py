"""Documents are filed with every run above the retriever, and forgotten when runs end."""

from __future__ import annotations

from uuid import uuid4

from langchain_ragcache.run_tree import RagCacheCallbackHandler, RunTree, install


def test_a_call_takes_the_documents_of_its_nearest_ancestor() -> None:
    tree = RunTree()
    root, left, right, search = uuid4(), uuid4(), uuid4(), uuid4()
    tree.begin(root, None)
    tree.begin(left, root)
    tree.begin(right, root)
    tree.begin(search, left, query="fee?")
    tree.retrieved(search, ["D1"])
    assert [r.documents for r in tree.find(left)] == [("D1",)]
    assert [r.query for r in tree.find(right)] == ["fee?"]
    other = uuid4()
    tree.begin(other, right, query="port?")
    tree.retrieved(other, ["D2"])
    assert [r.documents for r in tree.find(right)] == [("D2",)]
    assert [r.documents for r in tree.find(left)] == [("D1",)]
    assert len(tree.find(root)) == 2


def test_an_unknown_run_finds_nothing() -> None:
    tree = RunTree()
    assert tree.find(None) == ()
    assert tree.find(uuid4()) == ()
    tree.retrieved(uuid4(), ["D1"])
    assert len(tree) == 0


def test_ended_runs_are_forgotten_and_their_documents_stay_above() -> None:
    tree = RunTree()
    root, search = uuid4(), uuid4()
    tree.begin(root, None)
    handler = RagCacheCallbackHandler(tree)
    handler.on_retriever_start({}, "fee?", run_id=search, parent_run_id=root)
    handler.on_retriever_end(["D1"], run_id=search)  # type: ignore[list-item]  # any document
    assert len(tree) == 1
    assert len(tree.find(root)) == 1
    handler.on_chain_end({}, run_id=root)
    assert len(tree) == 0


def test_the_tree_is_bounded() -> None:
    tree = RunTree()
    for _ in range(21_000):
        tree.begin(uuid4(), None)
    assert len(tree) <= 20_000


def test_installing_twice_attaches_one_handler() -> None:
    assert install() is install()


def test_a_call_whose_end_is_never_told_is_forgotten_with_its_parent():
    """LangChain says nothing of a retriever run or a model run that is cancelled."""
    tree = RunTree()
    chain, retriever, model, inner = uuid4(), uuid4(), uuid4(), uuid4()
    tree.begin(chain, None)
    tree.begin(retriever, chain, query="What is the fee?", is_leaf=True)
    tree.begin(model, chain, is_leaf=True)
    tree.begin(inner, chain)
    tree.end(chain)
    assert len(tree) == 1  # a chain below may go on by itself
    tree.end(inner)
    assert len(tree) == 0
