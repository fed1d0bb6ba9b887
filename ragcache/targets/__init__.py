"""Stage 3: who answers a miss."""
