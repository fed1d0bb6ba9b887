"""Stage 4: whether an answer may be stored, signed entries, promotion. Pure: no I/O, no clock."""

from __future__ import annotations

from .decision import decide, lifetime_s
from .policy import AdmissionPolicy
from .signature import KeyRing

__all__ = ["AdmissionPolicy", "KeyRing", "decide", "lifetime_s"]
