"""Stage 1: arrange a request so that its prefix can be reused. Pure."""
