"""How many answers a principal, and a tenant, may write in a time. Counted in each process."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

from ..admission import AdmissionPolicy, Bucket, RateLimit, full, take
from ..types import Scope

#: Writers that are remembered; whoever was quiet longest begins anew.
_WRITERS_MAX = 10_000


class WriteRates:
    """Token buckets of writers.

    Args:
        policy: The rates.
        tick: Monotonic seconds.
    """

    def __init__(
        self, policy: AdmissionPolicy, *, tick: Callable[[], float] = time.monotonic
    ) -> None:
        self._tick = tick
        self._of_principals = RateLimit(per_s=policy.writes_per_s, burst=policy.writes_at_once)
        self._of_tenants = RateLimit(
            per_s=policy.tenant_writes_per_s, burst=policy.tenant_writes_at_once
        )
        self._buckets: OrderedDict[tuple[str, ...], Bucket] = OrderedDict()

    def allow(self, scope: Scope) -> bool:
        """Count one write; return whether it may be done.

        A tenant that names no principals is counted as a tenant only.
        """
        who = (scope.tenant, scope.principal)
        if not scope.is_the_tenants and not self._take(who, self._of_principals):
            return False
        return self._take((scope.tenant,), self._of_tenants)

    def _take(self, who: tuple[str, ...], limit: RateLimit) -> bool:
        now_s = self._tick()
        bucket = self._buckets.pop(who, None) or full(limit, now_s)
        self._buckets[who], allowed = take(bucket, limit, now_s)
        if len(self._buckets) > _WRITERS_MAX:
            self._buckets.popitem(last=False)
        return allowed
