"""Settings: one TOML file, environment variables and arguments; secrets are masked.

Order of precedence: arguments, environment (`RAGCACHE_...`, nested with `__`), file, defaults.
"""

from __future__ import annotations

import difflib
import json
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from .errors import ConfigError
from .shapes import translated

#: Postgres, Redis, none, or Redis in front of Postgres.
StoreName = Literal["postgres", "redis", "none"] | tuple[Literal["redis"], Literal["postgres"]]

#: Whose server it is: which cache fields it takes, and which rules and prices hold.
Provider = Literal[
    "generic", "openai", "vllm", "anthropic", "deepseek", "gemini", "kimi", "mistral", "qwen"
]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ApiSettings(_Section):
    """The model's side.

    `base_url` goes up to and including the version (`https://host/v1`); `replicas` are several such
    addresses of vLLM servers with the same model, and `kv_events` where each of them publishes
    its KV events. The key itself, or the name of the environment variable that holds it;
    `headers` are sent with each request. `timeout_s` bounds the wait for each byte of an answer,
    `connect_s` that for a connection; `attempts` is how often a call is made where the server was
    not reached or is too busy. `roles` is what the model's chat template accepts. `transport`
    carries the requests; the gateway takes `aiohttp` where nothing is said.
    """

    base_url: str = ""
    replicas: tuple[str, ...] = ()
    kv_events: tuple[str, ...] = ()
    kv_topic: str = ""
    api_key: SecretStr = SecretStr("")
    api_key_env: str = ""
    headers: dict[str, SecretStr] = Field(default_factory=dict)
    timeout_s: float = Field(default=60.0, gt=0)
    connect_s: float = Field(default=10.0, gt=0)
    attempts: int = Field(default=3, ge=1)
    provider: Provider = "generic"
    roles: Literal["any", "strict", "no_system"] = "any"
    transport: Literal["httpx", "aiohttp"] = "httpx"

    def key(self) -> str:
        """Return the API key."""
        return self.api_key.get_secret_value() or os.environ.get(self.api_key_env, "")


class ModelSettings(_Section):
    """Which model is asked.

    `revision` is what tells its weights from those that had the same name before: answers of
    another revision are not served.
    """

    name: str = ""
    revision: str = ""


class EngineSettings(_Section):
    """A vLLM engine of one's own, for `ragcache vllm-args` and an engine in this process.

    `args` are vLLM's own engine arguments, by name with underscores, over those of the preset,
    which may move prefixes to `kv_cpu_gib` GiB of CPU memory and to the folder `kv_disk`.
    """

    preset: Literal["balanced", "long_context", "many_tenants"] = "balanced"
    platform: Literal["cuda", "rocm", "xpu", "cpu"] = "cuda"
    kv_cpu_gib: int = Field(default=16, ge=1)
    kv_disk: str = ""
    args: dict[str, Any] = Field(default_factory=dict)


class ServerSettings(_Section):
    """Where the gateway listens."""

    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65535)


class GatewaySettings(_Section):
    """Who may use the gateway, for what, and how much at a time.

    `keys_file` holds hashes of static keys, `jwks_file` the public keys of an issuer of signed
    tokens (`jwt_*`; the `*_claim` say who asks): at least one is needed. `models` may be asked
    beside `model.name`. `sharing` says who else is served what one principal's request stored.
    `concurrency` bounds the requests under way in a process, `tenant_concurrency` those of one
    tenant; `body_timeout_s` the wait for a body, `answer_timeout_s` a whole answer,
    `shutdown_s` what is under way when the server is stopped. `metrics_key` opens `/metrics`;
    without one only this machine may read it.
    """

    keys_file: Path | None = None
    jwks_file: Path | None = None
    jwt_issuer: str = ""
    jwt_audience: str = ""
    jwt_algorithms: tuple[str, ...] = ("RS256", "ES256", "EdDSA")
    tenant_claim: str = "tenant"
    principal_claim: str = "sub"
    access_claim: str = "access"
    models: tuple[str, ...] = ()
    sharing: Literal["private", "tenant"] = "private"
    max_body_bytes: int = Field(default=8 * 2**20, ge=1)
    concurrency: int = Field(default=1000, ge=1)
    tenant_concurrency: int = Field(default=500, ge=1)
    body_timeout_s: float = Field(default=30.0, gt=0)
    answer_timeout_s: float = Field(default=600.0, gt=0)
    shutdown_s: int = Field(default=30, ge=0)
    workers: int = Field(default=1, ge=1)
    metrics_key: SecretStr = SecretStr("")


class PromptSettings(_Section):
    """What the prompts of this application are made of.

    `stable_prefix` is the system text of requests that bring none. The order of the rest is
    ragcache's own: documents first, then what varies.
    """

    stable_prefix: tuple[str, ...] = ()
    semi_stable: tuple[Literal["retrieved_docs"], ...] = ("retrieved_docs",)
    variable_tail: tuple[Literal["user_question", "latest_turn"], ...] = (
        "user_question",
        "latest_turn",
    )


class StoreSettings(_Section):
    """Where answers live. Without a DSN an embedded Postgres is started in `home`.

    `dsn` is the app role's, which serves; `ops_dsn` the ops role's, for the command line, and for
    maintenance in the background every `maintain_every_s` seconds (0: never; an embedded Postgres
    needs no DSN for it). `quota` is the most entries of a namespace of a tenant without its own;
    `index_at` the vectors of a partition from which it gets an index; `halfvec` keeps vectors in
    half precision. `redis_dsn` is the Redis of `kind = "redis"` and `kind = ["redis", "postgres"]`,
    `redis_cluster` says that it is a cluster.
    """

    kind: StoreName = "postgres"
    dsn: SecretStr = SecretStr("")
    ops_dsn: SecretStr = SecretStr("")
    redis_dsn: SecretStr = SecretStr("")
    redis_cluster: bool = False
    home: Path | None = None
    pool_size: int = Field(default=8, ge=1)
    quota: int = Field(default=100_000, ge=0)
    halfvec: bool = False
    index_at: int = Field(default=5_000, ge=2)
    maintain_every_s: float = Field(default=300.0, ge=0)


class EmbeddingSettings(_Section):
    """How questions become vectors.

    `model` is a sentence-transformers name or folder, or `openai:NAME` for an endpoint; "" means
    exact hits only.
    """

    model: str = "all-MiniLM-L6-v2"
    revision: str = ""
    base_url: str = ""
    api_key: SecretStr = SecretStr("")
    dimensions: int | None = Field(default=None, ge=1)
    threads: int = Field(default=1, ge=1)


class VerifierSettings(_Section):
    """A second opinion where the gates leave one open: a word that nothing explains.

    `model` is a cross-encoder of sentence-transformers, by name or folder, or `fitted:FILE` for
    what `ragcache calibrate --fit FILE` made of your own pairs; "" asks nobody. It is heard from a
    score of `threshold`, within `budgets.verify_ms`. With `judge` the target is asked in the
    background: its word counts when the same question comes again.
    """

    model: str = ""
    revision: str = ""
    threshold: float = Field(default=0.90, ge=0.0, le=1.0)
    threads: int = Field(default=1, ge=1)
    judge: bool = False


class BudgetSettings(_Section):
    """How long a request waits for the cache's own parts."""

    store_ms: float = Field(default=50.0, gt=0)
    embed_ms: float = Field(default=250.0, gt=0)
    verify_ms: float = Field(default=100.0, gt=0)
    put_ms: float = Field(default=50.0, ge=0)


class SecuritySettings(_Section):
    """Secrets. Without them, random ones are made once and kept in the store's home.

    `signing_keys` maps key ids to secrets; entries are signed with `current` and verified with
    any of them. `policy_version` is the operator's name for the rules that answers were made
    under: answers of another version are not served.
    """

    policy_version: str = ""
    salt_secret: SecretStr = SecretStr("")
    signing_keys: dict[str, SecretStr] = Field(default_factory=dict)
    current: str = ""


class TelemetrySettings(_Section):
    """What is counted, and where.

    `prometheus` and `opentelemetry` are on where their packages are installed, unless said
    otherwise here. `record` keeps the latest requests in the Postgres store, for `ragcache stats`,
    `report` and `why`: figures and reasons, and what was asked and answered only with `contents`.
    `tenant_label` is for few tenants. `request_log` is a file to which each request is appended as
    it was sent, prompts in full, for `ragcache lint --log` and `diff`. `prices` holds, for a
    model, `input` and `output` (where it has them also `read`, `write`, `write_1h`) in US dollars
    for a million tokens; `prices_file` holds them in the form of `ragcache/providers/*.toml`, in
    whose place it stands.
    """

    prometheus: bool | None = None
    opentelemetry: bool | None = None
    record: bool = True
    keep: int = Field(default=10_000, ge=1)
    contents: bool = False
    tenant_label: bool = False
    request_log: Path | None = None
    prices: dict[str, dict[str, float]] = Field(default_factory=dict)
    prices_file: Path | None = None


class Settings(BaseSettings):
    """All settings of a cache. `layout`, `lookup`, `admission` and `guard` take the fields of
    `LayoutPolicy`, `LookupPolicy`, `AdmissionPolicy` and `GuardPolicy`. Inside `lookup`, the tables
    `namespaces` and `languages` hold what differs for one of them, and a namespace's table may
    have `languages` of its own.
    """

    model_config = SettingsConfigDict(
        extra="forbid", frozen=True, env_prefix="RAGCACHE_", env_nested_delimiter="__"
    )

    api: ApiSettings = ApiSettings()
    model: ModelSettings = ModelSettings()
    engine: EngineSettings = EngineSettings()
    server: ServerSettings = ServerSettings()
    gateway: GatewaySettings = GatewaySettings()
    prompt: PromptSettings = PromptSettings()
    store: StoreSettings = StoreSettings()
    embedding: EmbeddingSettings = EmbeddingSettings()
    verifier: VerifierSettings = VerifierSettings()
    budgets: BudgetSettings = BudgetSettings()
    security: SecuritySettings = SecuritySettings()
    telemetry: TelemetrySettings = TelemetrySettings()
    layout: dict[str, Any] = Field(default_factory=dict)
    lookup: dict[str, Any] = Field(default_factory=dict)
    admission: dict[str, Any] = Field(default_factory=dict)
    guard: dict[str, Any] = Field(default_factory=dict)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 -- pydantic passes all five
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 -- as above
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 -- as above
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Environment before what `load` read from a file."""
        return env_settings, init_settings

    @classmethod
    def load(cls, path: str | Path | None = None, **overrides: Any) -> Self:
        """Read a file, the environment and arguments.

        The file is in ragcache's own shape, or in one of those of `ragcache.shapes`.

        Raises:
            ConfigError: The file is missing or malformed, or a setting is unknown or wrong.
        """
        values = _merged(_long(translated(_read(Path(path)))) if path else {}, _long(overrides))
        _refuse_unknown(values)
        try:
            return cls(**values)
        except ValidationError as error:
            raise ConfigError(_told(error, path)) from error


def _read(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"settings file {path} cannot be read: {error.strerror}") from error
    try:
        values = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except ValueError as error:
        raise ConfigError(f"settings file {path} is malformed: {error}") from error
    if not isinstance(values, dict):
        raise ConfigError(f"settings file {path} must hold a table at its top")
    return values


def _long(values: Mapping[str, Any]) -> dict[str, Any]:
    """`store = "redis"` says no more than `store.kind = "redis"`."""
    store = values.get("store")
    if isinstance(store, (str, list, tuple)):
        return {**values, "store": {"kind": store}}
    return dict(values)


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for name, value in over.items():
        below = merged.get(name)
        if isinstance(below, Mapping) and isinstance(value, Mapping):
            merged[name] = _merged(below, value)
        else:
            merged[name] = value
    return merged


def _refuse_unknown(values: Mapping[str, Any]) -> None:
    """Name an unknown setting and the nearest known one."""
    for name, value in values.items():
        field = Settings.model_fields.get(name)
        if field is None:
            raise ConfigError(_unknown(name, Settings.model_fields))
        section = field.annotation
        if not (isinstance(section, type) and issubclass(section, BaseModel)):
            continue
        if not isinstance(value, Mapping):
            continue
        for inner in value:
            if inner not in section.model_fields:
                raise ConfigError(_unknown(f"{name}.{inner}", section.model_fields, f"{name}."))


def _unknown(name: str, known: Mapping[str, Any], prefix: str = "") -> str:
    names = [prefix + k for k in known]
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.0)
    return f"unknown setting {name!r}: did you mean {near[0]!r}?"


def _told(error: ValidationError, path: str | Path | None) -> str:
    where = f" in {path}" if path else ""
    rows = [
        f"{'.'.join(str(p) for p in row['loc'])}: {row['msg']}"
        for row in error.errors(include_input=False)
    ]
    return f"wrong settings{where}: " + "; ".join(rows)
