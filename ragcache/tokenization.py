"""Tokens as the target counts them, from the tokenizer file that its model ships with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .errors import ConfigError


class FileTokenizer:
    """A Hugging Face `tokenizer.json`, read without a model. Adds no special tokens.

    Args:
        path: The file, or the folder that holds it.

    Raises:
        ConfigError: The `tokenizers` package is missing, or the file cannot be read.
    """

    def __init__(self, path: Path | str) -> None:
        file = Path(path)
        file = file / "tokenizer.json" if file.is_dir() else file
        self._tokenizer = _read(file)

    def encode(self, text: str) -> Sequence[int]:
        """Return the token ids of a text."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def count(self, text: str) -> int:
        """Return how many tokens a text has."""
        return len(self.encode(text))

    def offsets(self, text: str) -> tuple[tuple[int, int], ...]:
        """Return the character range of each token of a text."""
        return tuple(self._tokenizer.encode(text, add_special_tokens=False).offsets)


def _read(file: Path) -> Any:
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise ConfigError(
            "counting with a tokenizer needs the tokenizers package: "
            "pip install 'ragcache-middleware[sentence-transformers]'"
        ) from error
    if not file.is_file():
        raise ConfigError(f"no tokenizer in {file}: give a tokenizer.json or its folder")
    try:
        return Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises bare Exception for a file it cannot read
        raise ConfigError(f"{file} is not a tokenizer.json: {error}") from error
