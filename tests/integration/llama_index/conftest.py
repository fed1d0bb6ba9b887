"""What every test of LlamaIndex's doors needs."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _own_loop(loop_of_synchronous_calls: None) -> None:
    """No loop is left open."""
