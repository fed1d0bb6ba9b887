"""Where answers live: Postgres with pgvector, embedded or given; Redis beside it.

A store keeps tenants apart, keeps answers current and stays out of the way. What is served is
decided in `ragcache.lookup`; a store only finds and writes.
"""
