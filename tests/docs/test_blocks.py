"""Every command and every block of code in the documentation does what it says.

Commands run in a folder with the files that the pages speak of, against a database and a model of
their own. What takes minutes, or changes the machine, is covered by another test: the table says
by which.
"""

from __future__ import annotations

import json
import re
import tomllib
from contextlib import AsyncExitStack

import pytest
import typer
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnablePassthrough
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_openai import ChatOpenAI

from ragcache import Settings, factory
from ragcache.cli.app import app
from ragcache.gateway.credentials import read_keys
from tests.doubles.embedder import TableEmbedder

from .blocks import PAGES, ROOT, blocks, mentioned, text_of
from .world import World

#: What is not run here, and the test that covers it.
ELSEWHERE = {
    r"make demo": "tests/acceptance/test_demo.py",
    r".*make demo .*|.*=\S+ make demo": (
        "tests/docs/test_newcomer.py::test_a_folder_of_ones_own_reaches_a_hit"
    ),
    r"make (install|check|test|prove|help|bench)": "tests/docs/test_blocks.py::test_make_knows_the_target",
    r"pip install .*": "tests/docs/test_blocks.py::test_what_is_installed_is_an_extra_of_ours",
    r"ragcache serve.*": "tests/integration/gateway/test_serving.py",
    r"ragcache stats --watch": "tests/docs/test_observability.py",
    r"python examples/observability/app.py.*": "tests/docs/test_observability.py",
    r"cd examples/observability && prometheus.*": "tests/docs/test_observability.py",
}
#: Python that shows a form, with dots where the reader's own stands.
SHOWN = {
    "docs/demo.md": "tests/acceptance/test_demo.py",
}
SHELL, TEXT = ("bash", "sh", "console"), ("", "text")


def covered(command: str) -> bool:
    return any(re.fullmatch(pattern, command) for pattern in ELSEWHERE)


@pytest.fixture
def world(tmp_path, monkeypatch, fresh_database, upstream):
    monkeypatch.chdir(tmp_path)
    for name, value in (("OPENAI_BASE_URL", upstream.base_url), ("OPENAI_API_KEY", "k")):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(factory, "embedder_from", lambda settings: TableEmbedder())
    return World(tmp_path, fresh_database, upstream.base_url)


@pytest.fixture
def chain() -> dict:
    """The chain that a reader of the README has already."""
    documents = [
        Document(page_content="The demurrage fee is 80 per day.", metadata={"source": "fees.md"})
    ]
    store = InMemoryVectorStore.from_documents(documents, DeterministicFakeEmbedding(size=16))
    return {
        "retriever": store.as_retriever(search_kwargs={"k": 1}),
        "format_docs": lambda found: "\n\n".join(document.page_content for document in found),
        "prompt": ChatPromptTemplate.from_template("{context}\n\nQuestion: {question}"),
        "RunnablePassthrough": RunnablePassthrough,
        "llm": ChatOpenAI(model="fake"),
    }


@pytest.mark.parametrize("page", PAGES)
def test_commands(page, world):
    for block in blocks(page):
        if block.language not in SHELL:
            continue
        for command in block.commands():
            if not covered(command):
                world.run(command)


@pytest.mark.parametrize("page", [p for p in PAGES if p not in SHOWN])
async def test_python(page, world, chain):
    world.names |= chain
    async with AsyncExitStack() as stack:
        for block in blocks(page):
            if block.language == "python":
                await world.execute(block, stack)


@pytest.mark.parametrize("page", PAGES)
def test_settings(page, tmp_path):
    for number, block in enumerate(blocks(page)):
        if block.language == "toml":
            file = tmp_path / f"{number}.toml"
            file.write_text(block.text, encoding="utf-8")
            if "keys" in tomllib.loads(block.text):  # the gateway's own file
                file.write_text(block.text.replace("...", "0" * 64), encoding="utf-8")
                assert read_keys(file)
            else:
                Settings.load(file)
        elif block.language == "json":
            json.loads(block.text)


@pytest.mark.parametrize("page", PAGES)
def test_no_block_hides_a_command(page):
    """A block without a language, or in another one, is a picture: no command is in it."""
    known = {*SHELL, *TEXT, "python", "toml", "json"}
    for block in blocks(page):
        assert block.language in known, block.name
        if block.language in TEXT:
            hidden = [r for r in block.text.splitlines() if re.match(r"(ragcache|make|pip) ", r)]
            assert hidden == [], block.name


def verbs() -> dict[str, typer.core.TyperCommand]:
    found = {}

    def walk(group, *before):
        for name, command in group.commands.items():
            if hasattr(command, "commands"):
                walk(command, *before, name)
            found[" ".join((*before, name))] = command

    walk(typer.main.get_command(app))
    return found


VERBS = verbs()


@pytest.mark.parametrize("page", PAGES)
def test_a_command_in_a_sentence_names_a_verb_and_options_that_exist(page):
    for command in mentioned(page):
        words = [w for w in re.split(r"\s+", command)[1:] if w]
        verb = " ".join(words[:2]) if " ".join(words[:2]) in VERBS else words[0]
        assert verb in VERBS, f"{page}: {command}"
        known = {name for p in VERBS[verb].params for name in (*p.opts, *p.secondary_opts)}
        used = {w.partition("=")[0] for w in words if w.startswith("--")}
        assert used <= {*known, "--help"}, f"{page}: {command}"


# --- the table ---------------------------------------------------------------------------------


def test_what_is_covered_elsewhere_is():
    for place in {*ELSEWHERE.values(), *SHOWN.values()}:
        file, _, name = place.partition("::")
        assert (ROOT / file).exists(), place
        assert not name or f"def {name}(" in text_of(file), place


def test_the_table_holds_nothing_that_no_page_says():
    said = all_commands()
    unused = [p for p in ELSEWHERE if not any(re.fullmatch(p, command) for command in said)]
    assert unused == []


def all_commands() -> list[str]:
    return [c for page in PAGES for b in blocks(page) if b.language in SHELL for c in b.commands()]


def test_make_knows_the_target():
    targets = set(re.findall(r"^([a-z-]+):", text_of("Makefile"), re.M))
    said = {m[1] for command in all_commands() if (m := re.search(r"\bmake ([a-z-]+)", command))}
    assert said
    assert said <= targets


def test_what_is_installed_is_an_extra_of_ours():
    project = tomllib.loads(text_of("pyproject.toml"))["project"]
    lines = [line for page in PAGES for line in text_of(page).splitlines() if "pip install" in line]
    named = re.findall(r"pip install '?([a-z-]+)\[([a-z,-]+)\]", "\n".join(lines))
    assert named
    for package, extras in named:
        assert package == project["name"]
        assert set(extras.split(",")) <= set(project["optional-dependencies"])


# --- Chinese -----------------------------------------------------------------------------------


def test_the_chinese_readme_has_the_same_commands_and_code():
    def bare(page):
        texts = [re.sub(r"#.*", "", block.text) for block in blocks(page)]
        return [[" ".join(line.split()) for line in text.splitlines()] for text in texts]

    assert bare("README.zh-CN.md") == bare("README.md")
    assert len(bare("README.md")) >= 5


def test_commands_are_cut_where_comments_begin():
    """The control of the reading itself."""
    (block,) = [b for b in blocks("README.md") if "doctor" in b.text]
    assert block.commands()[0] == "ragcache doctor"
    assert "ragcache report --html report.html" in block.commands()
    assert not any("#" in command for command in block.commands())
