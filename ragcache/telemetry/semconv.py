"""Every name that telemetry uses: metrics, labels and attributes, in one table.

Names of generative AI follow OpenTelemetry's `semantic-conventions-genai` (status Development,
read 2026-11); where the installed constants have them too, a test compares. What an answer cache
does has no convention and is named `ragcache.*`: it must never appear as `gen_ai.usage.cache_read`,
which is the provider's own cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["counter", "histogram", "gauge"]

#: Seconds of a stage: the cache's own parts take fractions of a millisecond, targets minutes.
STAGE_BUCKETS = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60,
)  # fmt: skip
#: Recommended for `gen_ai.client.operation.duration`: 0.01 s, doubling.
DURATION_BUCKETS = tuple(0.01 * 2**n for n in range(14))
#: Recommended for `gen_ai.client.token.usage`: powers of four.
TOKEN_BUCKETS = tuple(4**n for n in range(14))
#: Thresholds lie between 0.8 and 0.99: that is where it must be possible to look closely.
SIMILARITY_BUCKETS = (
    0.5, 0.6, 0.7, 0.75, 0.8, 0.82, 0.84, 0.86, 0.88, 0.9, 0.92, 0.94, 0.96, 0.98, 0.99, 1,
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric.

    Args:
        name: As OpenTelemetry has it.
        kind: counter (only grows), histogram, gauge.
        unit: In UCUM: `s`, `{token}`, `USD`.
        help: One sentence.
        labels: Their values are few: a tenant is none of them unless it was asked for.
        buckets: Upper bounds of a histogram.
        exposed: The Prometheus name where the rule below would not give it.
    """

    name: str
    kind: Kind
    unit: str
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    exposed: str = ""

    @property
    def prometheus(self) -> str:
        """Return the name that Prometheus shows: with `_total` on a counter."""
        base = self.exposed or self.name.replace(".", "_")
        return f"{base}_total" if self.kind == "counter" else base


REQUESTS = Metric(
    name="ragcache.requests",
    kind="counter",
    unit="{request}",
    help="Answered requests, by what the cache did.",
    labels=("status",),
)
MISSES = Metric(
    name="ragcache.misses",
    kind="counter",
    unit="{request}",
    help="Requests that went forward, by the reason on their status.",
    labels=("reason",),
)
STAGE = Metric(
    name="ragcache.stage.duration",
    kind="histogram",
    unit="s",
    help="Time that a stage of a request took.",
    labels=("stage",),
    buckets=STAGE_BUCKETS,
    exposed="ragcache_stage_seconds",
)
TTFT = Metric(
    name="ragcache.ttft",
    kind="histogram",
    unit="s",
    help="Time to the first token, by what the cache did.",
    labels=("status",),
    buckets=STAGE_BUCKETS,
    exposed="ragcache_ttft_seconds",
)
TOKENS = Metric(
    name="ragcache.tokens",
    kind="counter",
    unit="{token}",
    help="Tokens of calls (prompt, cached, written, output), of predictions, and of calls spared.",
    labels=("kind", "model"),
)
COST = Metric(
    name="ragcache.cost",
    kind="counter",
    unit="USD",
    help="US dollars: spent, uncached (spent without a prefix cache), spared by hits, lost to bad "
    "hits, verification. Saved is uncached - spent + spared - lost - verification.",
    labels=("kind", "model"),
    exposed="ragcache_cost_usd",
)
UNPRICED = Metric(
    name="ragcache.unpriced",
    kind="counter",
    unit="{request}",
    help="Requests whose money is unknown: no price for the model, or no token counts.",
    labels=("model",),
)
ADMISSIONS = Metric(
    name="ragcache.admissions",
    kind="counter",
    unit="{answer}",
    help="Answers that were admitted or rejected, by the check that rejected them.",
    labels=("verdict", "check"),
)
SIMILARITY = Metric(
    name="ragcache.lookup.similarity",
    kind="histogram",
    unit="1",
    help="Similarity of the nearest stored question, hit or not.",
    buckets=SIMILARITY_BUCKETS,
)
JUDGED = Metric(
    name="ragcache.judged",
    kind="counter",
    unit="{hit}",
    help="Semantic hits that were judged, by verification or by users.",
    labels=("agreed", "by"),
)
COLLAPSED = Metric(
    name="ragcache.collapsed",
    kind="counter",
    unit="{request}",
    help="Requests that were answered by another request's call.",
)
LOST_REUSE = Metric(
    name="ragcache.lost_reuse",
    kind="counter",
    unit="{token}",
    help="Tokens that were predicted to be reused and were computed again, by cause.",
    labels=("cause",),
)
DEGRADED = Metric(
    name="ragcache.degraded",
    kind="counter",
    unit="{fault}",
    help="Faults of the cache's own parts that were passed by.",
    labels=("part", "reason"),
)
TARGET_ERRORS = Metric(
    name="ragcache.target.errors",
    kind="counter",
    unit="{call}",
    help="Calls to the target that failed, by error.",
    labels=("error",),
)
ENTRIES = Metric(
    name="ragcache.entries",
    kind="gauge",
    unit="{entry}",
    help="Stored answers, by state, as of the last `ragcache stats` or scrape of them.",
    labels=("state",),
)
BAD_HIT_BOUND = Metric(
    name="ragcache.bad_hit.bound",
    kind="gauge",
    unit="1",
    help="Upper bound of the bad-hit rate at 95 %, valid at any time; 1 while nothing is judged.",
)
HOOK_ERRORS = Metric(
    name="ragcache.hook.errors",
    kind="counter",
    unit="{error}",
    help="Hooks that failed; the requests did not.",
)

METRICS = (
    REQUESTS,
    MISSES,
    STAGE,
    TTFT,
    TOKENS,
    COST,
    UNPRICED,
    ADMISSIONS,
    SIMILARITY,
    JUDGED,
    COLLAPSED,
    LOST_REUSE,
    DEGRADED,
    TARGET_ERRORS,
    ENTRIES,
    BAD_HIT_BOUND,
    HOOK_ERRORS,
)

# --- generative AI -----------------------------------------------------------------------------

GEN_AI_DURATION = Metric(
    name="gen_ai.client.operation.duration",
    kind="histogram",
    unit="s",
    help="Duration of a call to the model.",
    labels=("gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model", "error.type"),
    buckets=DURATION_BUCKETS,
)
GEN_AI_FIRST_CHUNK = Metric(
    name="gen_ai.client.operation.time_to_first_chunk",
    kind="histogram",
    unit="s",
    help="Time to the first piece of an answer.",
    labels=("gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model"),
    buckets=DURATION_BUCKETS,
)
#: The newer repository splits this into counters; one line to switch once that has settled.
GEN_AI_TOKENS = Metric(
    name="gen_ai.client.token.usage",
    kind="histogram",
    unit="{token}",
    help="Tokens of a call to the model.",
    labels=(
        "gen_ai.operation.name",
        "gen_ai.provider.name",
        "gen_ai.request.model",
        "gen_ai.token.type",
    ),
    buckets=TOKEN_BUCKETS,
)
GEN_AI_METRICS = (GEN_AI_DURATION, GEN_AI_FIRST_CHUNK, GEN_AI_TOKENS)

OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
REQUEST_MODEL = "gen_ai.request.model"
FINISH_REASONS = "gen_ai.response.finish_reasons"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
#: Served from the provider's or the engine's own cache; part of the input tokens.
CACHE_READ_TOKENS = "gen_ai.usage.cache_read.input_tokens"
REASONING_TOKENS = "gen_ai.usage.reasoning.output_tokens"
TIME_TO_FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"
TOKEN_TYPE = "gen_ai.token.type"  # noqa: S105 -- a kind of token, not a secret
ERROR_TYPE = "error.type"
INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"
GEN_AI_ATTRIBUTES = (
    OPERATION,
    PROVIDER,
    REQUEST_MODEL,
    FINISH_REASONS,
    INPUT_TOKENS,
    OUTPUT_TOKENS,
    CACHE_READ_TOKENS,
    REASONING_TOKENS,
    TIME_TO_FIRST_CHUNK,
    TOKEN_TYPE,
    INPUT_MESSAGES,
    OUTPUT_MESSAGES,
)
#: Content: on only where it was asked for.
CONTENT_ATTRIBUTES = (INPUT_MESSAGES, OUTPUT_MESSAGES)

# --- the answer span ---------------------------------------------------------------------------

ANSWER_SPAN = "ragcache.answer"
STATUS = "ragcache.status"
FWD = "ragcache.fwd"
REASON = "ragcache.reason"
REQUEST_ID = "ragcache.request_id"
ENTRY = "ragcache.entry"
SIMILARITY_ATTRIBUTE = "ragcache.similarity"
CERTIFIED = "ragcache.certified"
COLLAPSED_ATTRIBUTE = "ragcache.collapsed"
STORED = "ragcache.stored"
STORE_REASON = "ragcache.store_reason"
PREDICTED_TOKENS = "ragcache.layout.predicted_reuse_tokens"
BLOCKS = "ragcache.layout.blocks"
REUSE_CAUSE = "ragcache.reuse_cause"
NAMESPACE = "ragcache.namespace"
VERSION = "ragcache.version"
TENANT = "ragcache.tenant"
SAVED_INPUT_TOKENS = "ragcache.saved.input_tokens"
SAVED_OUTPUT_TOKENS = "ragcache.saved.output_tokens"
ANSWER_ATTRIBUTES = (
    STATUS,
    FWD,
    REASON,
    REQUEST_ID,
    ENTRY,
    SIMILARITY_ATTRIBUTE,
    CERTIFIED,
    COLLAPSED_ATTRIBUTE,
    STORED,
    STORE_REASON,
    PREDICTED_TOKENS,
    BLOCKS,
    REUSE_CAUSE,
    NAMESPACE,
    VERSION,
    TENANT,
    SAVED_INPUT_TOKENS,
    SAVED_OUTPUT_TOKENS,
)

STAGES = ("layout", "embed", "lookup", "target", "admission", "answer")
STATUSES = ("hit_exact", "hit_semantic", "miss", "stale", "bypass")
