from __future__ import annotations

from ragcache.gateway.recognised import recognised
from ragcache.layout.located import locate
from ragcache.types import Message


def user(text: str) -> tuple[Message, ...]:
    return (Message(role="user", content=text),)


def test_documents_between_tags_are_found_with_their_sources():
    text = '<doc source="a.md">Alpha.</doc>\n<doc url="b.md">Beta.</doc>\nWhich?'
    found = recognised(user(text))
    assert [(seen.text, seen.origin.source) for seen in found] == [
        ("Alpha.", "a.md"),
        ("Beta.", "b.md"),
    ]
    formatted, standing = locate(user(text), found)
    assert len(standing) == 2
    assert formatted.blocks == (
        '<doc source="a.md">Alpha.</doc>',
        '<doc url="b.md">Beta.</doc>',
    ) or len(formatted.blocks) in (0, 2)


def test_documents_with_a_content_tag_are_found_inside_it():
    text = (
        "<document index='1'><source>a.md</source><document_content>Alpha.</document_content>"
        "</document>"
    )
    (seen,) = recognised(user(text))
    assert (seen.text, seen.origin.source) == ("Alpha.", "a.md")


def test_numbered_documents_are_known_and_stay_where_they_are():
    text = '<document index="1">Alpha.</document>\n<document index="2">Beta.</document>\nWhich?'
    found = recognised(user(text))
    formatted, standing = locate(user(text), found)
    assert len(standing) == 2
    assert not formatted.blocks
    assert formatted.unchanged_because


def test_paragraphs_headings_and_what_the_model_said_are_no_documents():
    assert not recognised(user("Context:\n\nAlpha.\n\nBeta.\n\n---\n\nQuestion?"))
    assert not recognised((Message(role="assistant", content="<doc>Alpha.</doc>"),))
    assert not recognised(user("<doc> </doc> <document> never closed"))
