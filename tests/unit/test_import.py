"""The core is light: no framework, no provider client, no torch, and no extra is needed."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("langchain_core", "llama_index", "openai", "torch", "psycopg", "redis", "starlette")


def run(program: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout


def test_importing_the_core_loads_none_of_the_extras():
    loaded = run(
        "import sys, ragcache, ragcache.pipeline, ragcache.factory, ragcache.portal\n"
        f"print([m for m in {HEAVY!r} if m in sys.modules])"
    )
    assert loaded.strip() == "[]"


def test_the_core_works_where_no_extra_can_be_imported():
    blocked = (
        "import sys\n"
        f"for name in {HEAVY!r}: sys.modules[name] = None\n"
        "import asyncio\n"
        "from ragcache import RagCache, Request, Settings\n"
        "from ragcache.types import Completion\n"
        "class T:\n"
        "    provider = name = model = 'x'\n"
        "    async def complete(self, call): return Completion(text='hi', finish_reason='stop')\n"
        "async def main():\n"
        "    s = Settings.load(store={'kind': 'none'}, embedding={'model': ''})\n"
        "    async with RagCache.open(s, target=T()) as c:\n"
        "        a = await c.answer(Request(tenant='t', question='q'))\n"
        "        print(a.text, a.status)\n"
        "asyncio.run(main())"
    )
    assert run(blocked).strip() == "hi ragcache; fwd=request; detail=no_store"


def test_a_missing_extra_is_named():
    program = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from ragcache import RagCache, Settings\n"
        "try: RagCache.open(Settings.load(embedding={'model': ''}))\n"
        "except Exception as e: print(type(e).__name__, e)"
    )
    out = run(program)
    assert out.startswith("ConfigError")
    assert "ragcache-middleware[postgres]" in out
