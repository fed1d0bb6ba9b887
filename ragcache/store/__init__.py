"""Where answers live."""
