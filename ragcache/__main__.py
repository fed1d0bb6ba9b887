"""`python -m ragcache`."""

from __future__ import annotations

from .cli.app import main

main()
