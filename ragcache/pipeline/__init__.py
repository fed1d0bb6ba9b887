"""The order of the stages: the only package that awaits them."""

from __future__ import annotations

from .asking import Budgets, Policies, guard_for
from .pipeline import Pipeline

__all__ = ["Budgets", "Pipeline", "Policies", "guard_for"]
