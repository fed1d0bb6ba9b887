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


def is_bounded(wrong: int, judged: int, rate: float, *, alpha: float = 0.05) -> bool:
    """Return whether `fixed_upper` is at most `rate`, without looking for it."""
    return 0 <= wrong < judged and _binomial_cdf(wrong, judged, rate) <= alpha


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
    """Return the probability of at most k < n of n, a regularised incomplete beta function.

    By its continued fraction (DLMF 8.17.22): a sum over k would take as long as k is large.
    """
    a, b, x = n - k, k + 1, 1.0 - p
    front = math.exp(a * math.log1p(-p) + b * math.log(p) - _log_beta(a, b))
    if x < (a + 1) / (a + b + 2):
        return front * _beta_fraction(a, b, x) / a
    return 1.0 - front * _beta_fraction(b, a, p) / b


def _beta_fraction(a: float, b: float, x: float) -> float:
    """Evaluate the continued fraction by Lentz's method, in the modified form."""
    c, d = 1.0, 1.0 / _no_zero(1.0 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, 10_000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1.0 / _no_zero(1.0 + term * d)
            c = _no_zero(1.0 + term / c)
            value *= c * d
        if abs(c * d - 1.0) < 1e-12:
            break
    return value


def _no_zero(value: float) -> float:
    return value if abs(value) > 1e-300 else 1e-300


def _bisect(is_below: Callable[[float], bool]) -> float:
    low, high = 1e-9, 1.0 - 1e-9
    for _ in range(40):
        middle = (low + high) / 2
        if is_below(middle):
            low = middle
        else:
            high = middle
    return high
