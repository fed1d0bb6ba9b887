"""Stage 4: may this answer be stored? Pure."""
