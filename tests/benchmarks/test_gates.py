"""What the gates cost: five stored readings taken out of their JSON and compared with a question.

The question's own reading and the stored parts are made before the clock runs, as in a lookup.
Each is timed three times and the best counts: a busy machine is not the gates.
"""

from __future__ import annotations

import os
import time

import numpy as np
import pytest

from ragcache.bench.embedding import named
from ragcache.bench.questions import understood
from ragcache.bench.rewording import paraphrases, traps
from ragcache.lookup import LookupPolicy, Reading
from ragcache.lookup.gates import gate_reason


@pytest.mark.timeout(600)
def test_five_candidates_pass_the_gates_within_two_milliseconds() -> None:
    pairs = [*paraphrases(400, seed=11), *traps(400, seed=11)]
    known = understood(
        [text for p in pairs for text in (p.stored, p.asked)], named("all-MiniLM-L6-v2")
    )
    stored = np.stack([known[p.stored].embedding.vector for p in pairs])
    packed = [known[p.stored].reading.as_json() for p in pairs]
    policy = LookupPolicy()

    def asked(at: int) -> float:
        question = known[pairs[at].asked]
        nearest = np.argsort(-(stored @ question.embedding.vector))[:5]
        began_s = time.perf_counter()
        for place in map(int, nearest):
            reading = Reading.from_json(packed[place])
            assert reading is not None
            gate_reason(reading, question.reading, policy)
        return time.perf_counter() - began_s

    for at in range(100):
        asked(at)
    ms = np.array([min(asked(at) for _ in range(3)) for at in range(len(pairs))]) * 1_000
    p50, p99 = np.percentile(ms, [50, 99])
    print(f"five candidates: p50 {p50:.2f} ms, p99 {p99:.2f} ms, load {os.getloadavg()[0]:.1f}")
    assert p99 <= 2.0
