"""The border: errors of redis-py become errors of ragcache here and nowhere else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from redis import exceptions

from ...errors import StoreError, StoreUnavailableError

_REFUSED = (exceptions.NoPermissionError, exceptions.AuthenticationError)
#: A server that will do later: away, starting, out of memory, a replica, without its replicas.
_LATER = (
    exceptions.ConnectionError,
    exceptions.TimeoutError,
    exceptions.ClusterError,
    exceptions.ClusterDownError,
    exceptions.MasterDownError,
    exceptions.ReadOnlyError,
    exceptions.OutOfMemoryError,
    exceptions.TryAgainError,
    OSError,
    TimeoutError,
)
_LATER_CODES = ("NOREPLICAS", "MISCONF", "BUSY", "LOADING", "MASTERDOWN", "CLUSTERDOWN", "OOM")


@contextmanager
def translated() -> Iterator[None]:
    """Turn what the driver raises inside the block into errors of ragcache.

    Raises:
        StoreUnavailableError: Away, too slow, full, a replica, or no connection was free.
        StoreError: A right is missing, the server is a cluster, or it refused a command.
    """
    try:
        yield
    except exceptions.MovedError as error:
        raise StoreError("this Redis is a cluster: set store.redis_cluster = true") from error
    except (*_LATER, exceptions.RedisError) as error:
        raise _ours(error) from error


def _ours(error: Exception) -> StoreError:
    # A connection that was refused while it was made wraps the reason.
    if isinstance(error, _REFUSED) or isinstance(error.__cause__, _REFUSED):
        return StoreError(
            f"Redis refused this user ({first_line(error)}): give it the rights that "
            "docs/redis.md lists, or another user in the DSN"
        )
    if isinstance(error, _LATER) or first_line(error).startswith(_LATER_CODES):
        return StoreUnavailableError(f"Redis: {first_line(error)}")
    return StoreError(f"Redis refused a command: {first_line(error)}")


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text."""
    return (str(error) or type(error).__name__).splitlines()[0]
