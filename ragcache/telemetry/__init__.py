"""Events become metrics, spans and records. Hooks may fail, requests may not."""
