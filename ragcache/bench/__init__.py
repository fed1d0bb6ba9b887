"""Replays of public traces: what the layout reuses and what it costs, without an engine."""
