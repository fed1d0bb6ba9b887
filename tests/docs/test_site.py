"""The pages build strictly, and the site asks nobody for anything."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from .blocks import ROOT

#: Links that a reader may follow; nothing is loaded from them.
_LOADED = re.compile(r"""<(?:script|img|iframe|source|link)\b[^>]*?(?:src|href)=["']?([^"'> ]+)""")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    ran = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    return folder


def test_every_page_is_built(site):
    pages = {path.stem for path in (ROOT / "docs").glob("*.md")}
    assert pages <= {path.stem for path in site.glob("*.html")}


def test_nothing_is_loaded_from_elsewhere(site):
    loaded = {
        (path.name, address)
        for path in site.glob("*.html")
        for address in _LOADED.findall(path.read_text(encoding="utf-8"))
    }
    assert loaded
    assert [one for one in loaded if re.match(r"(https?:)?//", one[1])] == []
    sheets = "".join(p.read_text(encoding="utf-8") for p in site.rglob("*.css"))
    assert not re.search(r"url\(['\"]?(https?:)?//", sheets)
