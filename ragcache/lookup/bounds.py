"""Upper bounds of an error rate: one for a single look, one for looking all the time.

`fixed_upper` is Clopper and Pearson (1934): valid for one look at a sample of a size that was
settled beforehand. 598 judged without an error bound the rate by 0.005 at 95 %.

`anytime_upper` is a confidence sequence: valid at every moment together, however often it is
looked at (Ville 1939; Robbins 1970; Howard, Ramdas, McAuliffe and Sekhon 2021). For a rate p it
bets against p with a mixture of rates: most of the stake on "no errors at all", so that clean
evidence certifies as early as the single look does, the rest spread by a Beta prior, so that the
bound goes on to tighten after an error.
"""

from __future__ import annotations

import math
from collections.abc import Callable

#: Share of the stake that still bets after the first error.
_SPREAD = 0.0005
#: Beta prior of that share: mean 0.005.
_PRIOR_WRONG = 1.0
_PRIOR_RIGHT = 199.0


def fixed_upper(wrong: int, judged: int, *, alpha: float = 0.05) -> float:
    """Return the one-sided Clopper-Pearson bound of the error rate after one look."""
    if judged <= 0 or wrong >= judged:
        return 1.0
    return _bisect(lambda p: _binomial_cdf(wrong, judged, p) > alpha)


def anytime_upper(wrong: int, judged: int, *, alpha: float = 0.05) -> float:
    """Return a bound that holds at every moment together with probability 1 - alpha."""
    if judged <= 0 or wrong >= judged:
        return 1.0
    limit = math.log(1.0 / alpha)
    return _bisect(lambda p: p <= wrong / judged or log_wager(wrong, judged, p) < limit)


def log_wager(wrong: int, judged: int, rate: float) -> float:
    """Return the log of what a bettor has made of 1 who bets that the rate is below `rate`."""
    right = judged - wrong
    against = wrong * math.log(rate) + right * math.log1p(-rate)
    spread = (
        math.log(_SPREAD)
        + _log_beta(_PRIOR_WRONG + wrong, _PRIOR_RIGHT + right)
        - _log_beta(_PRIOR_WRONG, _PRIOR_RIGHT)
    )
    if wrong:
        return spread - against
    clean = math.log1p(-_SPREAD)
    top = max(clean, spread)
    return top + math.log(math.exp(clean - top) + math.exp(spread - top)) - against


def needed_without_error(rate: float, *, alpha: float = 0.05) -> int:
    """Return how many judgements without an error certify a rate: 598 for 0.005 at 95 %."""
    return math.ceil(math.log(alpha) / math.log1p(-rate))


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def _binomial_cdf(k: int, n: int, p: float) -> float:
    logs = [
        math.lgamma(n + 1)
        - math.lgamma(i + 1)
        - math.lgamma(n - i + 1)
        + i * math.log(p)
        + (n - i) * math.log1p(-p)
        for i in range(k + 1)
    ]
    return math.fsum(map(math.exp, logs))


def _bisect(is_below: Callable[[float], bool]) -> float:
    low, high = 1e-9, 1.0 - 1e-9
    for _ in range(40):
        middle = (low + high) / 2
        if is_below(middle):
            low = middle
        else:
            high = middle
    return high
