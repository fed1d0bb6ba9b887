"""What a lookup may serve, and what the guard holds: checked when they are set."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, Literal

from ..errors import ConfigError

GateLevel = Literal["off", "normal", "strict"]

_LEVELS = ("off", "normal", "strict")


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupPolicy:
    """How alike two questions must be, and what is checked besides.

    Args:
        threshold: Lowest cosine similarity at which a stored answer may be served; equality
            is enough. A request or the guard can only raise it.
        uncertified_threshold: The same while too little traffic was judged to bound the error
            rate; never below `threshold`.
        gates: "off" serves by similarity alone (for comparison only), "normal" lets words be
            explained by their vectors, "strict" wants every word on both sides.
        alignment: Lowest cosine similarity of a left-over word's contextual vector with its
            counterpart; fitted to all-MiniLM-L6-v2, to be fitted anew for other embedders.
        conflict_margin: Other candidates that pass every gate and are within this of the best
            must give the same answer, else none is served.
        policy_gate: Do not match imperatives and questions about the present moment.
        evidence: The documents retrieved now must cover those the stored answer rests on.
        evidence_depth: How many of the best-ranked documents an answer without citations is
            taken to rest on.
        limit: How many candidates are looked at.

    Raises:
        ConfigError: A value is of the wrong type, not finite, or out of its range.
    """

    threshold: float = 0.70
    uncertified_threshold: float = 0.90
    gates: GateLevel = "normal"
    alignment: float = 0.45
    conflict_margin: float = 0.10
    policy_gate: bool = False
    evidence: bool = True
    evidence_depth: int = 3
    limit: int = 5

    def __post_init__(self) -> None:
        for name in ("threshold", "uncertified_threshold", "alignment", "conflict_margin"):
            check_share(name, getattr(self, name))
        for name in ("policy_gate", "evidence"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(f"{name} must be true or false, not {getattr(self, name)!r}")
        for name in ("limit", "evidence_depth"):
            _check_count(name, getattr(self, name))
        if self.gates not in _LEVELS:
            raise ConfigError(f"gates must be one of {', '.join(_LEVELS)}, not {self.gates!r}")

    @classmethod
    def known(cls) -> tuple[str, ...]:
        """Return the names that can be set."""
        return tuple(f.name for f in fields(cls))


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardPolicy:
    """What the guard holds, and how hard it looks.

    Args:
        bad_hit_guard: Highest rate of wrong answers served.
        per: "hits": wrong of all semantic hits; "all": wrong of all lookups.
        floor: Lowest threshold it may choose.
        uncertified: Threshold where evidence is thin.
        verify_share: Share of hits verified once the rate is certified.
        verify_share_thin: The same before that.
        enough: Judgements from which a level speaks for itself.
        auto: Whether the guard may lower the threshold under `uncertified` by evidence.
        shared: Whether what is seen here is counted with what other processes see; a check with
            made-up answers has nothing to teach.

    Raises:
        ConfigError: A value is of the wrong type or out of its range.
    """

    bad_hit_guard: float = 0.005
    per: Literal["hits", "all"] = "hits"
    floor: float = 0.70
    uncertified: float = 0.90
    verify_share: float = 0.05
    verify_share_thin: float = 0.20
    enough: int = 100
    auto: bool = True
    shared: bool = True

    def __post_init__(self) -> None:
        for name in ("bad_hit_guard", "floor", "uncertified", "verify_share", "verify_share_thin"):
            check_share(name, getattr(self, name))
        if not 0.0 < self.bad_hit_guard < 0.5:
            raise ConfigError("bad_hit_guard must lie between 0 and 0.5, both excluded")
        if self.per not in ("hits", "all"):
            raise ConfigError(f"per must be hits or all, not {self.per!r}")
        if isinstance(self.enough, bool) or not isinstance(self.enough, int) or self.enough < 1:
            raise ConfigError(f"enough must be a whole number of at least 1, not {self.enough!r}")


def check_share(name: str, value: Any) -> float:
    """Return a similarity or share that lies in [0, 1].

    Raises:
        ConfigError: It is not a number, not finite, or outside [0, 1].
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ConfigError(f"{name} must be a number between 0 and 1, not {value!r}")
    if not math.isfinite(value) or not 0.0 <= value <= 1.0:
        raise ConfigError(
            f"{name} is {value!r}: it is a similarity (1 = equal), so give a number between 0 and 1"
        )
    return float(value)


def _check_count(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"{name} must be a whole number of at least 1, not {value!r}")
