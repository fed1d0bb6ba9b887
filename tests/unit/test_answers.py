"""Between a completion, a stored entry and the answer a caller gets."""

from __future__ import annotations

from ragcache.answers import lineage
from ragcache.layout import arrange
from ragcache.types import Completion, Document, Formatted, Message, Request

D1 = Document(text="Free time is 4 days.", source="free.md")
D2 = Document(text="Demurrage is 80 per day.", source="fees.md")


def test_a_document_that_stands_unmoved_is_in_the_lineage() -> None:
    text = f"Context:\n{D1.text}\n\nQuestion: is it true that {D2.text}"
    formatted = Formatted(
        messages=(Message(role="user", content=text),),
        head="Context:\n",
        blocks=(D1.text,),
        tail=text.removeprefix(f"Context:\n{D1.text}"),
    )
    request = Request(tenant="t", question="?", documents=(D1, D2), formatted=formatted)
    layout = arrange(request)
    assert [b.documents for b in layout.blocks] == [(D1,), (D2,)]
    assert layout.messages == formatted.messages
    found = lineage(layout, Completion(text="Yes.", finish_reason="stop"))
    assert [(entry.names, entry.rank, entry.cited) for entry in found] == [
        (("free.md",), 0, True),
        (("fees.md",), 1, True),
    ]
