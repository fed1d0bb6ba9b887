"""ragcache for LangChain."""
