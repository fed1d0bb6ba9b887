"""The report: one self-contained page, made by pure functions from what was recorded."""

from __future__ import annotations

from .data import ReportData, gathered
from .page import page
from .scenarios import PUBLISHED, Scenario, scenarios

__all__ = ["PUBLISHED", "ReportData", "Scenario", "gathered", "page", "scenarios"]
