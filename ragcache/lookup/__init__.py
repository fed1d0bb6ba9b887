"""Stage 2: may a stored answer be served? Pure."""
