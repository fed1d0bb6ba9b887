"""From settings to a running cache: the only importer of concrete parts."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from .admission import AdmissionPolicy, KeyRing
from .embedders import Batched, HttpEmbedder, SentenceTransformerEmbedder
from .errors import ConfigError
from .events import Hooks
from .layout import LayoutPolicy
from .lookup import LookupPolicy
from .pipeline import Budgets, Pipeline, Policies, guard_for
from .pipeline.asking import utc_now
from .portal import Portal
from .protocols import Embedder, Store, Target, Verifier
from .settings import EmbeddingSettings, Settings, StoreSettings, TelemetrySettings
from .telemetry.hooks import subscribe
from .verifiers import CrossEncoderVerifier, FittedVerifier

if TYPE_CHECKING:
    from pydantic import SecretStr

    from .store.embedded import EmbeddedPostgres
    from .store.postgres import PostgresStore
    from .targets.openai import OpenAITarget
    from .targets.prompts import PromptTarget
    from .targets.vllm import VLLMTarget
    from .telemetry.recorder import Recorder

P = TypeVar("P")
_FRONT_SHARE = 0.4


class RagCache(Pipeline):
    """A cache made from settings.

    async with RagCache.open(Settings.load("ragcache.toml")) as cache:
        answer = await cache.answer(Request(tenant="acme", question="..."))
    """

    _server: EmbeddedPostgres | None = None
    _own_target: OpenAITarget | VLLMTarget | None = None
    _telemetry: TelemetrySettings | None = None
    _app_dsn = ""
    _recorder: Recorder | None = None
    _maintenance: Callable[[], Coroutine[Any, Any, None]] | None = None
    _maintaining: asyncio.Task[None] | None = None

    @classmethod
    def open(
        cls,
        settings: Settings | None = None,
        *,
        target: Target | None = None,
        hooks: Hooks | None = None,
    ) -> Self:
        """Return a cache, to be entered with `async with`.

        Without a DSN an embedded Postgres is started in the settings' home.

        Raises:
            ConfigError: A setting is wrong, or an extra is missing.
        """
        settings = settings or Settings.load()
        parts = _store(settings.store, waits_s=settings.budgets.store_ms / 1000)
        home = parts.home
        made = None if target is not None else _target(settings)
        cache = cls(
            target=target or made,
            store=parts.store,
            embedder=(embedder := embedder_from(settings)),
            verifier=verifier_from(settings, embedder),
            keyring=keyring_from(settings, home),
            salt_secret=_salt_secret(settings, home),
            policies=_policies(settings),
            hooks=hooks,
            system="\n\n".join(settings.prompt.stable_prefix),
        )
        cache._server, cache._own_target = parts.server, made
        cache._telemetry, cache._app_dsn = settings.telemetry, parts.app_dsn
        cache._maintenance = _maintenance(settings.store, parts.ops_dsn)
        return cache

    async def start(self) -> None:
        """Subscribe telemetry, open the store, maintain it in the background."""
        if self._telemetry is not None:
            self._recorder = subscribe(self.hooks, self._telemetry, app_dsn=self._app_dsn)
        await super().start()
        if self._maintenance is not None:
            self._maintaining = asyncio.create_task(self._maintenance())

    async def close(self) -> None:
        """Finish what is under way, give everything back, stop an embedded Postgres."""
        if self._maintaining is not None:
            self._maintaining.cancel()
            await asyncio.wait({self._maintaining})
        await super().close()
        if self._own_target is not None:
            await self._own_target.close()
        if self._recorder is not None:
            await asyncio.to_thread(self._recorder.close)
        if self._server is not None:
            await asyncio.to_thread(self._server.stop)


def connect(settings: Settings | None = None, **parts: Any) -> Portal:
    """Return an open cache for frameworks and synchronous code, on a loop of its own.

    cache = ragcache.connect(Settings.load("ragcache.toml"))
    llm = langchain_ragcache.wrap(llm, cache, tenant="acme")

    Raises:
        RagCacheError: Whatever is wrong with the settings, the store or the embedder.
    """
    return Portal(lambda: RagCache.open(settings, **parts))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stored:
    store: Store | None = None
    home: Path | None = None
    server: EmbeddedPostgres | None = None
    app_dsn: str = ""
    ops_dsn: str = ""


def _target(settings: Settings) -> OpenAITarget | VLLMTarget | None:
    if not settings.model.name:
        return None
    from .targets.openai import OpenAITarget
    from .targets.vllm import VLLMTarget

    api, shared = settings.api, _server_options(settings)
    if api.provider == "vllm" and (api.replicas or api.base_url):
        urls = api.replicas or (api.base_url,)
        return VLLMTarget(base_urls=urls, kv_events=api.kv_events, kv_topic=api.kv_topic, **shared)
    if api.replicas:
        raise ConfigError("api.replicas are vLLM servers: set api.provider = 'vllm'")
    return OpenAITarget(base_url=api.base_url, provider=api.provider, **shared)


def prompt_target_from(settings: Settings) -> PromptTarget:
    """Return the target of bare prompts: `/completions` of the settings' server.

    Raises:
        ConfigError: The `openai` package is not installed.
    """
    from .targets.prompts import PromptTarget

    api = settings.api
    url = (api.replicas or (api.base_url,))[0]
    return PromptTarget(base_url=url, provider=api.provider, **_server_options(settings))


def _server_options(settings: Settings) -> dict[str, Any]:
    api = settings.api
    return {
        "model": settings.model.name,
        "api_key": api.key(),
        "headers": {name: value.get_secret_value() for name, value in api.headers.items()},
        "timeout_s": api.timeout_s,
        "connect_s": api.connect_s,
        "attempts": api.attempts,
        "roles": api.roles,
        "transport": api.transport,
    }


def _store(settings: StoreSettings, *, waits_s: float) -> _Stored:
    """Return the store, the folder where secrets may be kept, and a server to stop.

    The store gives nothing up before the request's own budget for it, `waits_s`, would.
    """
    if settings.kind == "none":
        return _Stored(home=settings.home)
    if settings.kind == "redis":
        return _Stored(store=_redis(settings, waits_s=waits_s), home=settings.home)
    try:
        from .store.embedded import ensure
        from .store.postgres import PostgresStore
    except ImportError as error:
        raise _missing("Postgres", "postgres", error) from error
    ensured = None if settings.dsn.get_secret_value() else ensure(settings.home)
    app = ensured.dsns.app if ensured else settings.dsn.get_secret_value()
    truth = PostgresStore(
        app,
        pool_size=settings.pool_size,
        quota=settings.quota,
        halfvec=settings.halfvec,
        **_waits(waits_s),
    )
    pair = settings.kind != "postgres"
    return _Stored(
        store=_pair(settings, truth, app, waits_s=waits_s) if pair else truth,
        home=ensured.server.home if ensured else settings.home,
        server=ensured.server if ensured else None,
        app_dsn=app,
        ops_dsn=ensured.dsns.ops if ensured else settings.ops_dsn.get_secret_value(),
    )


def _waits(seconds: float) -> dict[str, Any]:
    return {"lookup_timeout_s": seconds, "pool_wait_s": seconds}


def _redis(settings: StoreSettings, *, waits_s: float) -> Store:
    try:
        from .store.redis.store import RedisStore
    except ImportError as error:
        raise _missing("Redis", "redis", error) from error
    options = _redis_options(settings, settings.redis_dsn or settings.dsn)
    return RedisStore(**options, **_waits(waits_s))


def _pair(settings: StoreSettings, truth: PostgresStore, app_dsn: str, *, waits_s: float) -> Store:
    try:
        from .store.pair import PairStore
        from .store.redis.copies import RedisCopies
    except ImportError as error:
        raise _missing("Redis", "redis", error) from error
    # Redis may take less than the lookup's budget, so that Postgres can still answer in its place.
    waits = _waits(waits_s) | {"lookup_timeout_s": _FRONT_SHARE * waits_s}
    options = _redis_options(settings, settings.redis_dsn)
    return PairStore(RedisCopies(**options, **waits), truth, dsn=app_dsn)


def _redis_options(settings: StoreSettings, dsn: SecretStr) -> dict[str, Any]:
    if not dsn:
        raise ConfigError("the Redis store needs store.redis_dsn: redis://, rediss:// or unix://")
    return {
        "dsn": dsn.get_secret_value(),
        "cluster": settings.redis_cluster,
        "pool_size": settings.pool_size,
        "quantised": settings.halfvec,
        "quota": settings.quota,
    }


def _missing(store: str, extra: str, error: ImportError) -> ConfigError:
    return ConfigError(
        f"the {store} store needs {error.name}: pip install 'ragcache-middleware[{extra}]'"
    )


def _maintenance(
    settings: StoreSettings, ops_dsn: str
) -> Callable[[], Coroutine[Any, Any, None]] | None:
    """Return what keeps the store maintained; None where nobody may, or nobody wants it."""
    if not ops_dsn or not settings.maintain_every_s:
        return None
    from .store.maintenance import keep_maintained

    return partial(
        keep_maintained,
        ops_dsn,
        every_s=settings.maintain_every_s,
        clock=utc_now,
        quota=settings.quota,
        index_at=settings.index_at,
    )


def embedder_from(settings: Settings) -> Embedder | None:
    """Return the embedder of the settings, not opened yet; None where they name none.

    Raises:
        ConfigError: A setting is wrong.
    """
    return _embedder(settings.embedding, settings.api.base_url, settings.api.key())


def _embedder(settings: EmbeddingSettings, base_url: str, api_key: str) -> Embedder | None:
    if not settings.model:
        return None
    kind, _, name = settings.model.partition(":")
    if kind != "openai" or not name:
        return Batched(
            SentenceTransformerEmbedder(
                settings.model, revision=settings.revision, threads=settings.threads
            )
        )
    if settings.dimensions is None:
        raise ConfigError(
            f"embedding.dimensions is missing: say how long the vectors of {name!r} are"
        )
    return Batched(
        HttpEmbedder(
            base_url=settings.base_url or base_url,
            model=name,
            api_key=settings.api_key.get_secret_value() or api_key,
            dimensions=settings.dimensions,
        )
    )


def verifier_from(settings: Settings, embedder: Embedder | None) -> Verifier | None:
    """Return the second opinion of the settings, not opened yet; None where they name none.

    Raises:
        ConfigError: A setting is wrong, or the file was fitted to another embedder.
    """
    kind, _, path = settings.verifier.model.partition(":")
    if not settings.verifier.model:
        return None
    if kind == "fitted" and path:
        return FittedVerifier(path, embedder="" if embedder is None else embedder.id)
    return CrossEncoderVerifier(
        settings.verifier.model,
        revision=settings.verifier.revision,
        threads=settings.verifier.threads,
    )


def _policies(settings: Settings) -> Policies:
    lookup, lookups = _lookups(settings.lookup)
    guard = _policy(partial(guard_for, lookup), settings.guard, "guard")
    return Policies(
        second_at=settings.verifier.threshold,
        judge=settings.verifier.judge,
        revision=settings.model.revision,
        version=settings.security.policy_version,
        layout=_policy(LayoutPolicy, settings.layout, "layout"),
        lookup=lookup,
        lookups=lookups,
        guard=guard if settings.guard else None,
        admission=_policy(AdmissionPolicy, settings.admission, "admission"),
        budgets=Budgets(
            store_s=settings.budgets.store_ms / 1000,
            embed_s=settings.budgets.embed_ms / 1000,
            verify_s=settings.budgets.verify_ms / 1000,
            put_s=settings.budgets.put_ms / 1000,
        ),
    )


def _lookups(
    values: Mapping[str, Any],
) -> tuple[LookupPolicy, Mapping[tuple[str, str], LookupPolicy]]:
    """Return the policy of [lookup], and those of its namespaces and languages.

    What one of them leaves out is as in the section around it.
    """
    plain = {k: v for k, v in values.items() if k not in ("namespaces", "languages")}
    found = {("", language): part for language, part in _inside(plain, values, "languages")}
    for namespace, part in _inside(plain, values, "namespaces"):
        own = {k: v for k, v in part.items() if k != "languages"}
        found[namespace, ""] = own
        found |= {(namespace, code): both for code, both in _inside(own, part, "languages")}
    return _policy(LookupPolicy, plain, "lookup"), {
        key: _policy(LookupPolicy, part, f"lookup of {' '.join(filter(None, key))}")
        for key, part in found.items()
    }


def _inside(
    around: Mapping[str, Any], values: Mapping[str, Any], name: str
) -> list[tuple[str, dict[str, Any]]]:
    parts = values.get(name, {})
    if not isinstance(parts, Mapping) or not all(isinstance(p, Mapping) for p in parts.values()):
        raise ConfigError(f"wrong settings in [lookup]: {name} holds a table for each name")
    return [(str(key), {**around, **part}) for key, part in parts.items()]


def _policy(kind: Callable[..., P], values: dict[str, Any], section: str) -> P:
    try:
        return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})
    except TypeError as error:
        raise ConfigError(f"wrong settings in [{section}]: {error}") from error


# --- secrets -----------------------------------------------------------------------------------


def keyring_from(settings: Settings, home: Path | None) -> KeyRing:
    """Return the keys that sign entries: the settings', or one kept in the store's home.

    Raises:
        ConfigError: The current key is not among them.
    """
    security = settings.security
    if not security.signing_keys and settings.store.kind == "redis" and home is None:
        raise ConfigError(
            "processes that share a Redis must sign with the same key: set "
            "security.signing_keys, or store.home, a folder in which one is made"
        )
    if not security.signing_keys:
        return KeyRing({"local": _kept(home, "signing.key")}, "local")
    keys = {kid: key.get_secret_value().encode() for kid, key in security.signing_keys.items()}
    current = security.current or next(iter(keys))
    if current not in keys:
        raise ConfigError(
            f"security.current is {current!r}, which is not among security.signing_keys "
            f"({', '.join(keys)})"
        )
    return KeyRing(keys, current)


def _salt_secret(settings: Settings, home: Path | None) -> bytes:
    given = settings.security.salt_secret.get_secret_value()
    return given.encode() if given else _kept(home, "salt.key")


def _kept(home: Path | None, name: str) -> bytes:
    """Return the secret kept in a file, made at the first use; a passing one without a home."""
    if home is None:
        return secrets.token_bytes(32)
    path = Path(home) / name
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:  # noqa: PTH123 -- only os.open takes the mode
            file.write(secrets.token_bytes(32))
    except FileExistsError:
        pass
    return path.read_bytes()
