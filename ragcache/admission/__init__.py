"""Stage 4: whether an answer may be stored, signed entries, promotion. Pure: no I/O, no clock."""

from __future__ import annotations

from .crowding import Bucket, RateLimit, full, hubs, is_crowded, is_hub_vector, take
from .decision import decide, is_personal, lifetime_s
from .policy import AdmissionPolicy
from .promotion import Keep, Promote, decide_promotion
from .sentinels import SENTINELS
from .signature import KeyRing

__all__ = [
    "SENTINELS",
    "AdmissionPolicy",
    "Bucket",
    "Keep",
    "KeyRing",
    "Promote",
    "RateLimit",
    "decide",
    "decide_promotion",
    "full",
    "hubs",
    "is_crowded",
    "is_hub_vector",
    "is_personal",
    "lifetime_s",
    "take",
]
