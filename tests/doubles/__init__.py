"""What stands in for what cannot be had: a provider's API, a table of similarities, a clock."""
