"""What a team's own tests need: a real engine on CPU, a small model, sentence weights.

Nothing here is imported by the rest of ragcache. `engine` starts a vLLM server that ends with
the tests, `smollm` obtains and converts a 135-million-parameter chat model once, `minilm` finds
the weights of a sentence encoder.
"""

from __future__ import annotations

from .engine import Engine, EngineError, EngineOptions, Starting, start_engine, starting_engine
from .minilm import minilm_path
from .smollm import smollm_path

__all__ = [
    "Engine",
    "EngineError",
    "EngineOptions",
    "Starting",
    "minilm_path",
    "smollm_path",
    "start_engine",
    "starting_engine",
]
