"""What the demonstration reads, and how it is cut."""

from __future__ import annotations

from pathlib import Path

import pytest

from ragcache.demo.documents import PASSAGE_CHARACTERS, passages
from ragcache.errors import ConfigError


def test_the_language_reference_gives_some_hundred_passages_on_the_statements() -> None:
    found = passages(None)
    assert 300 < len(found) < 1500
    assert {"with", "try", "assert"} <= {passage.source.split("#")[0] for passage in found}
    assert len({passage.source for passage in found}) == len(found)


def test_a_passage_begins_with_its_title_and_is_bounded() -> None:
    for passage in passages(None):
        assert passage.text.startswith(passage.title)
        assert len(passage.text) <= len(passage.title) + 2 + PASSAGE_CHARACTERS


def test_a_long_paragraph_that_two_topics_share_is_indexed_once() -> None:
    shared = 'The "with" statement is used to wrap the execution of a block with'
    holding = [passage.source for passage in passages(None) if shared in passage.text]
    assert len(holding) == 1


def test_a_folder_is_read_whole_with_its_kinds_of_files(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "a.md").write_text("# Harbour\n\nShips moor at night.")
    (tmp_path / "below" / "b.txt").write_text(
        "Tides\n\nThey turn twice a day.", encoding="utf-8-sig"
    )
    (tmp_path / "c.bin").write_bytes(b"\xff\xfe")
    found = passages(tmp_path)
    assert [passage.source for passage in found] == ["a.md#0", "below/b.txt#0"]
    assert found[1].text == "Tides\n\nThey turn twice a day."


def test_nothing_of_a_text_is_lost_but_blank_space_and_rules(tmp_path: Path) -> None:
    words = [f"word{number}" for number in range(900)]
    lines = [" ".join(words[at : at + 9]) for at in range(0, 900, 9)]
    (tmp_path / "a.txt").write_text("Title\n=====\n\n" + "\n".join(lines))
    joined = " ".join(passage.text for passage in passages(tmp_path))
    assert [word for word in joined.split() if word != "Title"] == words


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, "holds no text"),
        ({"a.pdf": b"%PDF"}, "holds no text"),
        ({"a.txt": b" \n"}, "holds no text"),
        ({"a.txt": b"caf\xe9"}, "not UTF-8"),
    ],
)
def test_a_folder_without_readable_text_is_named(
    tmp_path: Path, files: dict[str, bytes], said: str
) -> None:
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=said) as refused:
        passages(tmp_path)
    assert str(tmp_path) in str(refused.value)


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no documents folder .*missing"):
        passages(tmp_path / "missing")
