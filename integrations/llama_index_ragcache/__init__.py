"""ragcache for LlamaIndex."""
