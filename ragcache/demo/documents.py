"""What the demonstration searches: the language reference in every Python, or a folder."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..errors import ConfigError

#: Files of these kinds are read from a folder.
SUFFIXES = (".md", ".rst", ".txt")
#: Longest passage in characters: about 180 tokens, which the sentence encoder reads whole.
PASSAGE_CHARACTERS = 700
#: A paragraph this long that stands in an earlier text too is left out.
_REPEATED_CHARACTERS = 60
_RULE = re.compile(r"^\s*[*=\-~^+#`]{3,}\s*$", re.MULTILINE)
_BLANK = re.compile(r"\n\s*\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """A piece of a text, as it is indexed and as the model reads it.

    Args:
        source: Name of the text and number of the piece: `with#2`.
        title: Title of the text.
        text: What the model reads; begins with the title.
    """

    source: str
    title: str
    text: str


def passages(folder: Path | None) -> tuple[Passage, ...]:
    """Return the passages of a folder, or of the language reference where none is given.

    Raises:
        ConfigError: The folder does not exist, or holds no text that can be read.
    """
    if folder is None:
        return tuple(_passages(_language_reference()))
    return tuple(_passages(_texts(folder)))


def _language_reference() -> Mapping[str, str]:
    """Return topics, the short ones first: long ones repeat short ones in full."""
    from pydoc_data.topics import topics

    return {name: topics[name] for name in sorted(topics, key=lambda name: len(topics[name]))}


def _texts(folder: Path) -> Mapping[str, str]:
    if not folder.is_dir():
        raise ConfigError(f"there is no documents folder {folder}: give one that exists")
    files = sorted(f for f in folder.rglob("*") if f.suffix.lower() in SUFFIXES and f.is_file())
    texts = {str(file.relative_to(folder)): _read(file) for file in files}
    if not any(text.strip() for text in texts.values()):
        raise ConfigError(
            f"the documents folder {folder} holds no text: put files in it that end in "
            f"{', '.join(SUFFIXES)}"
        )
    return texts


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{file} is not UTF-8 ({error.reason} at byte {error.start}): convert it, or move it "
            "out of the documents folder"
        ) from error


def _passages(texts: Mapping[str, str]) -> Iterator[Passage]:
    seen: set[str] = set()
    for name, text in texts.items():
        title, *paragraphs = [*_paragraphs(text)] or [""]
        fresh = [paragraph for paragraph in paragraphs if _is_fresh(paragraph, seen)]
        for number, piece in enumerate(_packed(fresh or [title])):
            yield Passage(source=f"{name}#{number}", title=title, text=f"{title}\n\n{piece}")


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in _BLANK.split(_RULE.sub("", text)):
        stripped = paragraph.strip("\n").rstrip()
        if stripped:
            yield from _cut(stripped)


def _cut(paragraph: str) -> Iterator[str]:
    """Yield the paragraph, cut between lines, or anywhere, where it is too long."""
    while len(paragraph) > PASSAGE_CHARACTERS:
        at = paragraph.rfind("\n", 1, PASSAGE_CHARACTERS) + 1 or PASSAGE_CHARACTERS
        yield paragraph[:at].rstrip("\n")
        paragraph = paragraph[at:]
    yield paragraph


def _is_fresh(paragraph: str, seen: set[str]) -> bool:
    normal = " ".join(paragraph.split())
    if len(normal) < _REPEATED_CHARACTERS:
        return True
    known = normal in seen
    seen.add(normal)
    return not known


def _packed(paragraphs: Iterable[str]) -> Iterator[str]:
    """Yield paragraphs joined to pieces of at most `PASSAGE_CHARACTERS`."""
    piece = ""
    for paragraph in paragraphs:
        if piece and len(piece) + len(paragraph) + 2 > PASSAGE_CHARACTERS:
            yield piece
            piece = ""
        piece = f"{piece}\n\n{paragraph}" if piece else paragraph
    if piece:
        yield piece
