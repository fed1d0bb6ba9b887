"""The orders that ContextPilot gives to a trace, as JSON. Runs in a Python of its own.

    python contextpilot_orders.py --trace T.trace.jsonl --k 10 --shuffle 0 [--batch]

Prints {"orders": [[number of the request, ids in order], ...], "ms": [...], "error": ""}. Where it
fails on the way, the orders so far and the error.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import random
import sys
import time


def main() -> None:
    """Read the arguments, print the orders."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trace", required=True)
    parser.add_argument("--k", type=int)
    parser.add_argument("--shuffle", type=int)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--batch", action="store_true")
    given = parser.parse_args()
    with open(given.trace, encoding="utf-8") as file:  # noqa: PTH123 -- stdlib only, any version
        requests = [json.loads(line)["ids"] for line in file if line.strip()]
    requests = [list(dict.fromkeys(ids))[: given.k] for ids in requests]
    if given.shuffle is not None:
        random.Random(given.shuffle).shuffle(requests)
    ordered = batched if given.batch else online
    # It prints some twenty lines a call.
    with contextlib.redirect_stdout(io.StringIO()):
        result = ordered(requests[: given.limit])
    json.dump(result, sys.stdout)


def online(requests: list[list[int]]) -> dict:
    """Order one request after the other."""
    import contextpilot

    pilot, orders, ms, error = contextpilot.ContextPilot(use_gpu=False), [], [], ""
    for number, ids in enumerate(requests):
        began = time.thread_time()
        try:
            order = pilot.reorder(list(ids))[0][0]
        except Exception as failure:
            error = f"{type(failure).__name__} at request {number + 1}: {failure}"
            break
        ms.append(1000 * (time.thread_time() - began))
        orders.append([number, list(order)])
    return {"orders": orders, "ms": ms, "error": error}


def batched(requests: list[list[int]]) -> dict:
    """Order and schedule all of them at once."""
    import contextpilot

    began = time.thread_time()
    try:
        orders, schedule = contextpilot.ContextPilot(use_gpu=False).reorder(
            [list(ids) for ids in requests]
        )
    except Exception as failure:
        return {"orders": [], "ms": [], "error": f"{type(failure).__name__}: {failure}"}
    each = 1000 * (time.thread_time() - began) / max(1, len(requests))
    rows = [[int(number), list(ids)] for number, ids in zip(schedule, orders, strict=True)]
    return {"orders": rows, "ms": [each] * len(rows), "error": ""}


if __name__ == "__main__":
    main()
