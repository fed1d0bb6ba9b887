"""The demonstration: one LangChain chain, asked the same questions with and without ragcache."""

from __future__ import annotations
