"""Which sequence a full tree forgets first: least recently used, least often used, or oldest.

    python -m tests.benchmarks.layout_evictions --docs D.docs.jsonl --trace T.trace.jsonl --k 10

The tree holds 10 % of the trace's tokens; it is judged by an engine's cache of the same size,
which evicts the least recently used, and by one without bounds.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import get_args

from ragcache.bench.layout import Bench
from ragcache.bench.trace import read_trace
from ragcache.layout import LayoutPolicy, PrefixForest
from ragcache.layout.plan import quarter_of_characters
from ragcache.layout.tree import Eviction

_SHARE = 0.1


def main() -> None:
    """Read the arguments, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--docs", type=Path, required=True)
    parser.add_argument("--trace", type=Path, required=True)
    parser.add_argument("--k", type=int)
    parser.add_argument("--shuffle", type=int)
    parser.add_argument("--limit", type=int)
    given = parser.parse_args()
    trace = read_trace(
        given.docs,
        given.trace,
        count=quarter_of_characters,
        k=given.k,
        limit=given.limit,
        shuffle=given.shuffle,
    )
    policy = LayoutPolicy(min_prefix_tokens=0)
    bench = Bench(trace, policy, quarter_of_characters, batch=False)
    print("| eviction | hit rate, 10 % | hit rate |")
    print("|---|---|---|")
    for eviction in get_args(Eviction):
        forest = PrefixForest(
            max_entries=len(trace.requests),
            max_tokens=bench.capacity_tokens(_SHARE),
            eviction=eviction,
        )
        done = bench.run(forest)
        bounded = bench.hit_rate(done, int(_SHARE * trace.document_tokens))
        print(f"| {eviction} | {bounded:.3f} | {bench.hit_rate(done, None):.3f} |", flush=True)


if __name__ == "__main__":
    main()
