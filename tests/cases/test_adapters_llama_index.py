"""Field cases through LlamaIndex."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.llama_index
