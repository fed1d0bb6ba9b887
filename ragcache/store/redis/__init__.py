"""Answers in Redis or Valkey: the `Store` of `ragcache.protocols`, without a database.

Everything of a tenant lies in one hash slot under a prefix that is the tenant's own, and every
step that decides (store, look, invalidate) is one script: nothing comes in between.
"""
