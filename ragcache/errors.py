"""Every error ragcache raises.

    RagCacheError
    ├── ConfigError            a setting is wrong, missing or unknown
    ├── RequestError           a request cannot be answered as it stands
    │   ├── MissingTenantError     no tenant was given
    │   ├── PromptTooLargeError    one document alone exceeds the window
    │   └── NotCachedError         only a cached answer was wanted, and there is none
    ├── StoreError             the store failed or refused
    │   ├── StoreUnavailableError  not reachable, or not within its budget
    │   ├── IsolationError         the store does not keep tenants apart: refuse to serve
    │   ├── MigrationError         the schema is not the one this version needs
    │   └── VectorError            a vector is NaN, zero or of the wrong dimension
    ├── EmbeddingError         the embedder failed, or not within its budget
    ├── VerifierError          the second opinion failed, or has none
    └── TargetError            the model's side failed; carries its status and body

A message says what happened, which object, and what to do.
"""

from __future__ import annotations


class RagCacheError(Exception):
    """Something went wrong in ragcache."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (self.__doc__ or type(self).__name__).splitlines()[0])


class ConfigError(RagCacheError):
    """A setting is wrong, missing or unknown."""


class RequestError(RagCacheError):
    """The request cannot be answered as it stands."""


class MissingTenantError(RequestError):
    """No tenant was given: pass tenant="..." so that answers cannot cross tenants."""


class PromptTooLargeError(RequestError):
    """One document alone is larger than the window: split it, or allow it to be cut."""


class NotCachedError(RequestError):
    """Only a cached answer was wanted (only_if_cached), and there is none that may be served."""


class StoreError(RagCacheError):
    """The store failed."""


class StoreUnavailableError(StoreError):
    """The store is not reachable, or did not answer within its budget."""


class IsolationError(StoreError):
    """The store does not keep tenants apart: serving is refused."""


class MigrationError(StoreError):
    """The schema is not the one that this version needs: run `ragcache migrate`."""


class VectorError(StoreError):
    """A vector is NaN, zero or of the wrong dimension."""


class EmbeddingError(RagCacheError):
    """The embedder failed, or did not answer within its budget."""


class VerifierError(RagCacheError):
    """The second opinion failed, or has none."""


class TargetError(RagCacheError):
    """The target failed.

    Args:
        message: What happened and what to do.
        status: HTTP status of the target, where it gave one.
        body: The target's own error body, passed through unchanged.
        kind: The target's own word for it, such as "rate_limit_error"; "timeout" and "connection"
            where it could give none.
        retry_after_s: How long the target asks to wait, where it does.
    """

    def __init__(
        self,
        message: str | None = None,
        *,
        status: int | None = None,
        body: object = None,
        kind: str = "",
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.body = body
        self.kind = kind
        self.retry_after_s = retry_after_s
