"""`ragcache bench`: replays that need no engine and no network."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from . import console
from .verbs import add

if TYPE_CHECKING:
    from collections.abc import Callable

bench = typer.Typer(
    name="bench",
    help="Replay recorded traffic and measure what is reused.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

# Options of several of the verbs.
_Embedder = Annotated[str, typer.Option(help="Model name or folder.")]
_Threshold = Annotated[
    float | None, typer.Option(help="Similarity threshold; the shipped one if left out.")
]
_AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def layout(
    *,
    docs: Annotated[Path, typer.Option(help='Documents, JSONL: {"id", "text"}.')],
    trace: Annotated[Path, typer.Option(help='Requests, JSONL: {"query", "ids"}.')],
    policy: Annotated[
        Literal["prefix_tree", "sorted", "retrieved"],
        typer.Option(help="How the blocks are ordered."),
    ] = "prefix_tree",
    k: Annotated[int | None, typer.Option(min=1, help="First documents of a request.")] = None,
    batch: Annotated[bool, typer.Option("--batch", help="Order the whole trace at once.")] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="First requests of the trace.")] = None,
    shuffle: Annotated[int | None, typer.Option(help="Seed of a shuffle.")] = None,
    tokenizer: Annotated[
        str | None, typer.Option(help="Folder of a Hugging Face tokenizer; else characters / 4.")
    ] = None,
    pin_top: Annotated[int, typer.Option(min=0, help="Best blocks that stand last.")] = 0,
    max_displacement: Annotated[
        int | None, typer.Option(min=0, help="Most places a block may move.")
    ] = None,
    block_size: Annotated[
        int | None, typer.Option(min=1, help="KV block of an engine: tell what it computes.")
    ] = None,
    align_blocks: Annotated[
        bool, typer.Option("--align-blocks", help="Pad blocks to whole KV blocks.")
    ] = False,
    as_json: _AsJson = False,
) -> None:
    """Replay retrievals and measure the prefix reuse of a layout.

    Prints the share of document tokens found in an unbounded prefix cache and in one that holds
    10 % of the trace, how far documents move, the processor time a request takes, and the relative
    input cost at each provider.
    """
    from ..bench.layout import replay

    result = replay(
        docs,
        trace,
        policy=policy,
        k=k,
        batch=batch,
        limit=limit,
        shuffle=shuffle,
        tokenizer=_counting(tokenizer),
        pin_top=pin_top,
        max_displacement=max_displacement,
        block_size=block_size,
        align_blocks=align_blocks,
    )
    if as_json:
        console.print_json(result)
    else:
        _print(result)


def _counting(folder: str | None) -> Callable[[str], int] | None:
    if folder is None:
        return None
    from ..tokenization import FileTokenizer

    return FileTokenizer(folder).count


def _print(result: dict[str, Any]) -> None:
    ms = result["ms"]
    console.say(f"policy              {result['policy']}{', batch' if result['batch'] else ''}")
    console.say(f"requests            {result['requests']:,}, first {result['k']} documents")
    console.say(f"hit rate            {result['hit_rate']:.4f}")
    console.say(f"hit rate, bounded   {result['hit_rate_bounded']:.4f}")
    console.say(f"displacement        {result['displacement']:.2f}")
    console.say(
        f"ms a request        mean {ms['mean']:.3f}, p50 {ms['p50']:.3f}, p99 {ms['p99']:.3f}"
    )
    if "computed" in result:
        console.say(f"computed by engine  {result['computed']:.4f}")
    console.say("relative input cost")
    width = max(map(len, result["relative_cost"]))
    for name, cost in result["relative_cost"].items():
        console.say(f"  {name:<{width}}  {cost:.4f}")


def _embedder(name: str) -> Any:
    from ..bench.embedding import named

    return named(name)


def answers(
    *,
    pairs: Annotated[
        Path, typer.Option(help='JSONL: {"a","b","same"} or {"cached","query","reuse"}.')
    ],
    embedder: _Embedder = "all-MiniLM-L6-v2",
    threshold: _Threshold = None,
    gates: Annotated[
        Literal["off", "normal", "strict"], typer.Option(help="How words are compared.")
    ] = "normal",
    policy_gate: Annotated[
        bool, typer.Option("--policy-gate", help="Match no actions and no time words.")
    ] = False,
    alignment: Annotated[
        float | None, typer.Option(help="Lowest likeness of a left-over word.")
    ] = None,
    ranker: Annotated[
        Path | None, typer.Option(help="Pairs to fit a second opinion on before.")
    ] = None,
    sweep: Annotated[bool, typer.Option("--sweep", help="One row a threshold.")] = False,
    as_json: _AsJson = False,
) -> None:
    """Ask pairs of questions: how many of the same meaning are served, how many of another.

    Prints wrong/all and wrong/hits, each with its upper bound at 95 %, and "not certified" until
    the evidence suffices.
    """
    from ..bench.answers import pairs_of, run
    from ..bench.calibrating import ranker_from_pairs
    from ..bench.questions import rows_of
    from ..lookup import LookupPolicy

    settings: dict[str, Any] = {"gates": gates, "policy_gate": policy_gate}
    if alignment is not None:
        settings["alignment"] = alignment
    if threshold is not None:
        settings["threshold"] = threshold
    chosen = _embedder(embedder)
    fitted = None if ranker is None else ranker_from_pairs(pairs_of(rows_of(ranker)), chosen)
    result = run(
        pairs_of(rows_of(pairs)),
        chosen,
        policy=LookupPolicy(**settings),
        ranker=fitted,
        sweep=sweep,
    )
    _shown(result, as_json=as_json)


def stream(
    *,
    file: Annotated[Path, typer.Option(help='Questions in order, JSONL: {"text", "label"}.')],
    embedder: _Embedder = "all-MiniLM-L6-v2",
    seed: Annotated[int | None, typer.Option(help="Seed of a shuffle.")] = None,
    error: Annotated[float, typer.Option(help="Wrong of all lookups to be held.")] = 0.005,
    limit: Annotated[int | None, typer.Option(min=1, help="First questions of the file.")] = None,
    as_json: _AsJson = False,
) -> None:
    """Ask a stream of questions with the guard on; only misses are stored.

    The threshold is found on the way, without labels beforehand: a miss's fresh answer is
    compared with the nearest stored one, and a share of hits is verified.
    """
    from dataclasses import replace

    from ..bench.questions import rows_of
    from ..bench.stream import STREAM_GUARD, lines_of, run

    result = run(
        lines_of(rows_of(file))[:limit],
        _embedder(embedder),
        guard=replace(STREAM_GUARD, bad_hit_guard=error),
        seed=seed,
    )
    _shown(result, as_json=as_json)


def replay(
    *,
    docs: Annotated[Path, typer.Option(help='Documents, JSONL: {"id", "text"}.')],
    trace: Annotated[
        Path, typer.Option(help='Requests, JSONL: {"query", "ids", "answers"}, with "gold" ids.')
    ],
    embedder: _Embedder = "all-MiniLM-L6-v2",
    threshold: _Threshold = None,
    uncited: Annotated[
        bool, typer.Option("--uncited", help="Stored answers do not cite their documents.")
    ] = False,
    as_json: _AsJson = False,
) -> None:
    """Ask recorded questions with their documents; only misses are stored.

    Then each is asked in other words, and once more after its answer has gone from the documents.
    Prints what is served, right and wrong, with the checks of documents and of the answer's own
    numbers, names and quotations, and without: what each removes.
    """
    from ..bench.questions import rows_of
    from ..bench.replay import asked_of, run
    from ..lookup import LookupPolicy

    result = run(
        asked_of(rows_of(trace), rows_of(docs)),
        _embedder(embedder),
        policy=LookupPolicy() if threshold is None else LookupPolicy(threshold=threshold),
        cited=not uncited,
    )
    _shown(result, as_json=as_json)


def _shown(result: dict[str, Any] | list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        console.print_json(result)
        return
    for row in result if isinstance(result, list) else [result]:
        plain = {key: value for key, value in row.items() if not isinstance(value, dict)}
        console.say("  ".join(f"{key} {value}" for key, value in plain.items()))


add(bench, answers, "ragcache bench answers --pairs pairs.jsonl --json")
add(bench, stream, "ragcache bench stream --file questions.jsonl --json")
add(bench, replay, "ragcache bench replay --docs D.docs.jsonl --trace T.trace.jsonl --json")
add(
    bench,
    layout,
    "ragcache bench layout --docs D.docs.jsonl --trace T.trace.jsonl --json",
)


def add_to(app: typer.Typer) -> None:
    """Add the verbs below `bench`."""
    app.add_typer(bench)
