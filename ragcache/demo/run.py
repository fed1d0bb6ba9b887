"""The demonstration from end to end: start, index, ask twice, compare, stop everything."""

from __future__ import annotations

import importlib.util
import signal
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ..errors import ConfigError
from ..events import Event, Hooks, LookedUp
from ..providers import find_price
from ..settings import Settings
from ..types import Hit
from .documents import Passage, passages
from .model import Model, named_model, own_model
from .questions import Question, questions_for
from .report import show
from .tally import Asked, compare

if TYPE_CHECKING:
    from langchain_core.runnables import Runnable
    from langchain_core.vectorstores import VectorStoreRetriever

    from ..portal import Portal
    from ..testing import Starting
    from .chain import Reply

TENANT = "acme"
#: GiB of KV cache: both chains' prompts fit, so that eviction does not blur the comparison.
_KV_SPACE_GIB = 2

#: Provider and model at whose price the tokens are shown; an engine of one's own has none.
_PRICED_AS = ("openai", "gpt-4.1-mini")

Advance = Callable[[int], None]


@dataclass(slots=True)
class Served:
    """A hook that notes which stored question each hit was served from."""

    questions: dict[str, str] = field(default_factory=dict)
    embed_seconds: dict[str, float] = field(default_factory=dict)

    def __call__(self, event: Event) -> None:
        """Note a lookup."""
        if isinstance(event, LookedUp) and isinstance(event.outcome, Hit):
            self.questions[event.request_id] = event.outcome.entry.question
            self.embed_seconds[event.request_id] = event.embed_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What the demonstration found."""

    plain: tuple[Asked, ...]
    cached: tuple[Asked, ...]
    served: Served


class Steps:
    """Named steps with a bar each, and how long they took."""

    def __init__(self, console: Console) -> None:
        self.times_s: dict[str, float] = {}
        self._console = console
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )

    def __enter__(self) -> Steps:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    @contextmanager
    def step(self, name: str, total: int = 1) -> Iterator[Advance]:
        """Time a step; it advances by what is told, by its whole when it ends."""
        task = self._progress.add_task(name, total=total)
        began_s = time.monotonic()
        try:
            yield lambda count: self._progress.advance(task, count)
            self._progress.update(task, completed=total)
        finally:
            self.times_s[name] = time.monotonic() - began_s
            self._progress.stop_task(task)
            if not self._console.is_terminal:  # a bar cannot be drawn: a line for each step
                self._console.print(f"{name}: {self.times_s[name]:.0f} s")


def run_demo(docs: Path | None = None) -> int:
    """Run the demonstration and print what it found; return the exit code.

    Raises:
        ConfigError: The documents folder is missing or empty, the server that the environment
            names cannot be used, or a part that is needed is not installed.
    """
    _check_installed()
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)  # what was started is stopped then, too
    texts = passages(docs)
    questions = questions_for(docs, texts)
    with ExitStack() as stack, Steps(Console(stderr=True)) as steps:
        starting = _model(stack, steps)
        retriever = index(texts, steps, meanwhile=_check_of(starting))
        model = _ready(starting, steps)
        with steps.step("start Postgres"):
            served = Served()
            cache = stack.enter_context(opened(served))
        findings = ask_both(model, retriever, cache, served, questions, steps)
        with steps.step("stop"):
            stack.close()
    price = find_price(*_PRICED_AS)
    figures = compare(findings.plain, findings.cached, price=price)
    show(Console(), figures, findings.cached, steps.times_s, price)
    return 0


def _leave(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _check_installed() -> None:
    needed = ("langchain_core", "langchain_openai", "sentence_transformers", "psycopg")
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"the demonstration needs {', '.join(missing)}: pip install langchain-openai "
            "'ragcache-middleware[langchain,openai,postgres,sentence-transformers]'"
        )


# --- the parts ---------------------------------------------------------------------------------


def _model(stack: ExitStack, steps: Steps) -> Model | Starting:
    """Return the server that the environment names, else begin to start one."""
    model = named_model()
    if model is not None:
        return model
    from ..testing import EngineOptions, smollm_path, starting_engine

    with steps.step("obtain the model"):
        folder = smollm_path()
    return stack.enter_context(
        starting_engine(EngineOptions(model=folder, kv_space_gib=_KV_SPACE_GIB))
    )


def _ready(starting: Model | Starting, steps: Steps) -> Model:
    if isinstance(starting, Model):
        return starting
    with steps.step("wait for vLLM"):
        engine = starting.ready()
    return own_model(engine.base_url, engine.model)


def _check_of(starting: Model | Starting) -> Callable[[], None]:
    """Return what tells of an engine that has ended while something else is done."""
    return (lambda: None) if isinstance(starting, Model) else starting.check


def index(
    texts: Sequence[Passage], steps: Steps, *, meanwhile: Callable[[], None] = lambda: None
) -> VectorStoreRetriever:
    """Return a retriever over the passages, with the sentence encoder that ragcache uses."""
    from ..embedders import SentenceTransformerEmbedder
    from .chain import SentenceEmbeddings, indexed

    with steps.step("load the sentence encoder"):
        embedder = SentenceTransformerEmbedder()
        embedder.load()
    with steps.step("index the documents", len(texts)) as advance:

        def advanced(count: int) -> None:
            advance(count)
            meanwhile()

        return indexed(texts, SentenceEmbeddings(embedder), advance=advanced)


@contextmanager
def opened(served: Served) -> Iterator[Portal]:
    """Open a cache that is empty: its embedded Postgres lives in a folder that is removed."""
    from ..factory import connect

    with tempfile.TemporaryDirectory(prefix="ragcache-demo-") as home:
        settings = Settings.load(
            store={"home": home},
            # A busy laptop should show decisions, not deadlines.
            budgets={"store_ms": 1000, "embed_ms": 3000, "put_ms": 2000},
        )
        with connect(settings, hooks=Hooks(served)) as cache:
            yield cache


# --- asking ------------------------------------------------------------------------------------


def ask_both(
    model: Model,
    retriever: VectorStoreRetriever,
    cache: Portal,
    served: Served,
    questions: Sequence[Question],
    steps: Steps,
) -> Findings:
    """Ask every question of the plain chain, then of the wrapped one, each with its own salt."""
    from langchain_ragcache import wrap

    from .chain import chain_of, chat_model

    run_id = uuid.uuid4().hex
    salt = {"cache_salt": f"plain-{run_id}"} if model.provider == "vllm" else {}
    plain = chain_of(retriever, chat_model(model, **salt))
    llm = wrap(chat_model(model), cache, tenant=TENANT, provider=model.provider, namespace=run_id)
    wrapped = chain_of(retriever, llm)
    with steps.step("ask the plain chain", len(questions)) as advance:
        first = tuple(_asked(plain, questions, served, advance))
    with steps.step("ask with ragcache", len(questions)) as advance:
        second = tuple(_asked(wrapped, questions, served, advance))
    return Findings(plain=first, cached=second, served=served)


def _asked(
    chain: Runnable[Any, Any], questions: Sequence[Question], served: Served, advance: Advance
) -> Iterator[Asked]:
    from .chain import ask, turn

    intents = {question.text: question.intent for question in questions}
    said: dict[str, tuple[str, Reply]] = {}
    for question in questions:
        history = []
        if question.after:
            earlier, reply = said[question.after]
            history = turn(earlier, reply.text)
        reply = ask(chain, question.text, history)
        said[question.intent] = question.text, reply
        stored = served.questions.get(str(reply.status.get("request_id")), "")
        yield Asked(question=question, reply=reply, written_for=intents.get(stored, ""))
        advance(1)
