"""The prefix layout beside ContextPilot and beside no layout, on a trace of retrievals.

    python -m venv peer && peer/bin/pip install contextpilot
    python -m tests.benchmarks.layout_peers --docs D.docs.jsonl --trace T.trace.jsonl \\
        --peer peer/bin/python --k 10 --shuffle 0 [--batch]

Every order is judged by the same simulated cache, which belongs to neither. Prints a row of a
Markdown table each: token-weighted hit rate with an unbounded cache and with one of 10 % of the
trace, and milliseconds of processor time per request. Without `--peer`, ContextPilot's rows are
left out.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ragcache.bench.layout import replay
from ragcache.bench.simulation import PrefixCache
from ragcache.bench.trace import Trace, read_trace
from ragcache.layout.plan import quarter_of_characters

_PEER = Path(__file__).with_name("contextpilot_orders.py")


def main() -> None:
    """Read the arguments, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--docs", type=Path, required=True)
    parser.add_argument("--trace", type=Path, required=True)
    parser.add_argument("--peer", type=Path, help="Python of an environment with contextpilot")
    parser.add_argument("--k", type=int)
    parser.add_argument("--shuffle", type=int)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--batch", action="store_true")
    given = parser.parse_args()
    print("| order | requests | hit rate | hit rate, 10 % | ms mean | ms p99 | |")
    print("|---|---|---|---|---|---|---|")
    policies = ("prefix_tree",) if given.batch else ("retrieved", "sorted", "prefix_tree")
    for policy in policies:
        print(_ours(policy, given), flush=True)
    if given.peer is not None:
        print(_peers(given), flush=True)


def _ours(policy: Any, given: argparse.Namespace) -> str:
    result = replay(
        given.docs,
        given.trace,
        policy=policy,
        k=given.k,
        batch=given.batch,
        limit=given.limit,
        shuffle=given.shuffle,
        rules=(),
    )
    rates, ms = (result["hit_rate"], result["hit_rate_bounded"]), result["ms"]
    return _row(f"ragcache {policy}", result["requests"], rates, (ms["mean"], ms["p99"]), "")


def _peers(given: argparse.Namespace) -> str:
    asked = ["--trace", str(given.trace)]
    for name in ("k", "shuffle", "limit"):
        if getattr(given, name) is not None:
            asked += [f"--{name}", str(getattr(given, name))]
    if given.batch:
        asked.append("--batch")
    ran = subprocess.run(
        [str(given.peer), str(_PEER), *asked], capture_output=True, text=True, check=True
    )
    told = json.loads(ran.stdout)
    trace = read_trace(
        given.docs,
        given.trace,
        count=quarter_of_characters,
        k=given.k,
        limit=given.limit,
        shuffle=given.shuffle,
    )
    orders = [ids for _, ids in told["orders"]]
    rates = (_hit_rate(trace, orders, None), _hit_rate(trace, orders, 0.1))
    times = sorted(told["ms"]) or [0.0]
    ms = (sum(times) / len(times), times[min(len(times) - 1, int(len(times) * 0.99))])
    return _row("ContextPilot", len(orders), rates, ms, told["error"])


def _hit_rate(trace: Trace, orders: Sequence[Sequence[Any]], share: float | None) -> float:
    capacity = None if share is None else int(share * trace.document_tokens)
    cache = PrefixCache(capacity)
    total = sum(trace.tokens[one] for ids in orders for one in ids)
    found = sum(cache.serve([(one, trace.tokens[one]) for one in ids]) for ids in orders)
    return found / total if total else 0.0


def _row(
    name: str,
    requests: int,
    rates: tuple[float, float],
    ms: tuple[float, float],
    error: str,
) -> str:
    figures = f"{rates[0]:.3f} | {rates[1]:.3f} | {ms[0]:.2f} | {ms[1]:.2f}"
    return f"| {name} | {requests:,} | {figures} | {error} |"


if __name__ == "__main__":
    main()
