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
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Replay retrievals and measure the prefix reuse of a layout.

    Prints the share of document tokens found in an unbounded prefix cache and in one that holds
    10 % of the trace, how far documents move, the time a request takes, and the relative input
    cost at each provider.
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
    )
    if as_json:
        console.print_json(result)
    else:
        _print(result)


def _counting(folder: str | None) -> Callable[[str], int] | None:
    if folder is None:
        return None
    from ..tokenization import load_tokenizer

    return load_tokenizer(folder).count


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
    console.say("relative input cost")
    for name, cost in result["relative_cost"].items():
        console.say(f"  {name:<18}{cost:.4f}")


add(
    bench,
    layout,
    "ragcache bench layout --docs D.docs.jsonl --trace T.trace.jsonl --json",
)
