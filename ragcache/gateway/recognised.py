"""Documents that stand in the messages by themselves: those between tags that say so. Pure.

    <document source="fees.md">...</document>
    <document index="1"><source>fees.md</source><document_content>...</document_content></document>

Only tags are read. Blank lines, rules and headings also stand inside documents, and what is taken
for two documents may be one whose parts must not change places.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ..layout.located import Seen, texts_of
from ..types import Document, Message

_DOCUMENT = re.compile(
    r"<(?P<tag>document|doc|passage|chunk|snippet)(?P<attributes>\s[^<>]{0,2000})?>"
    r"(?P<inner>.*?)</(?P=tag)>",
    re.S,
)
_CONTENT = re.compile(r"<(document_contents?|content|text)>(?P<text>.*?)</\1>", re.S)
_SOURCE = re.compile(r"<(source|url|title)>(?P<text>[^<>]{1,2000})</\1>")
_ATTRIBUTE = re.compile(r"(?P<name>[\w:.-]+)\s*=\s*(?:\"(?P<double>[^\"]*)\"|'(?P<single>[^']*)')")
#: These come from the place in the prompt: a block that moved would carry a wrong one.
_OF_THE_PLACE = frozenset({"index", "number", "no", "n", "rank", "position", "score", "i"})
_SOURCES = ("source", "url", "path", "file", "name", "title", "id")


def recognised(messages: Sequence[Message]) -> tuple[Seen, ...]:
    """Return the documents of a prompt, each text once, in the order of the prompt."""
    found: dict[str, Seen] = {}
    for message in messages:
        if message.role == "assistant":
            continue
        for _, text in texts_of(message):
            for seen in _between_tags(text):
                found.setdefault(seen.text, seen)
    return tuple(found.values())


def _between_tags(text: str) -> Iterator[Seen]:
    for match in _DOCUMENT.finditer(text):
        inner = match["inner"]
        content = _CONTENT.search(inner)
        body = (content["text"] if content else inner).strip()
        if not body:
            continue
        metadata = dict(_attributes(match["attributes"] or ""))
        if content and (source := _SOURCE.search(inner[: content.start()])):
            metadata["source"] = source["text"]
        name = next((metadata[key] for key in _SOURCES if metadata.get(key)), "")
        yield Seen(text=body, metadata=metadata, origin=Document(text=body, source=name))


def _attributes(text: str) -> Iterator[tuple[str, str]]:
    for match in _ATTRIBUTE.finditer(text):
        if match["name"].lower() not in _OF_THE_PLACE:
            yield match["name"].lower(), match["double"] or match["single"] or ""
