"""Tokens counted with the file of a model."""

from __future__ import annotations

import json

import pytest

from ragcache.errors import ConfigError
from ragcache.tokenization import FileTokenizer

WORDS = {
    "version": "1.0", "truncation": None, "padding": None, "added_tokens": [],
    "normalizer": None, "pre_tokenizer": {"type": "Whitespace"}, "post_processor": None,
    "decoder": None,
    "model": {"type": "WordLevel", "vocab": {"a": 0, "b": 1, "[UNK]": 2}, "unk_token": "[UNK]"},
}  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "tokenizer.json").write_text(json.dumps(WORDS))
    return tmp_path


def test_a_file_or_its_folder_counts_and_cuts(folder):
    for path in (folder, folder / "tokenizer.json"):
        tokenizer = FileTokenizer(path)
        assert list(tokenizer.encode("a b zzz")) == [0, 1, 2]
        assert tokenizer.count("a b zzz") == 3
        assert tokenizer.offsets("a b") == ((0, 1), (2, 3))


def test_a_missing_or_broken_file_is_refused_by_name(tmp_path):
    with pytest.raises(ConfigError, match="no tokenizer in"):
        FileTokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ConfigError, match="not a tokenizer"):
        FileTokenizer(tmp_path)
