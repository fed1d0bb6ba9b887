"""One or several vLLM servers of one's own, seen as one target."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator, Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import httpx

from ..errors import ConfigError, TargetError
from ..layout import AllBlocksCleared, EngineMirror, Host, block_chain
from ..types import Call, Chunk, Completion, EngineBlocks
from .body import arguments
from .engine_state import EngineState, read_metrics, restarted
from .faults import is_repeatable
from .kv_events import KvEventSubscriber
from .openai import OpenAITarget, Transport
from .routing import Link, Router, links_of

_log = logging.getLogger("ragcache")

_PROVIDER = "vllm"
_TOKENIZE_FIELDS = ("model", "messages", "tools")


@dataclass(slots=True, kw_only=True)
class Replica:
    """One server, and what is known of it."""

    root_url: str
    target: OpenAITarget
    state: EngineState = field(default_factory=EngineState)
    mirror: EngineMirror | None = None
    events: KvEventSubscriber | None = None
    down_until_s: float = 0.0


class VLLMTarget:
    """vLLM servers with the same model. A request goes to the one that was sent its prefix.

    Args:
        model: The model's name in the API (`--served-model-name`).
        base_urls: Of the servers, each up to and including `/v1`.
        api_key: Their key.
        headers: Sent with each request.
        timeout_s: Longest wait for the first byte of an answer, and for each further one.
        connect_s: Longest wait for a connection.
        attempts: For a single server; of several, each is tried once.
        roles: What the model's chat template accepts.
        transport: As `OpenAITarget` has it.
        kv_events: Where each server publishes its KV events, in the order of `base_urls`: then
            its cache is mirrored, and each answer says how many tokens it was expected to hold.
        kv_topic: The topic of those events.
        watch_s: How often each server's metrics are read: its load, and whether it was restarted.
        rest_s: How long a server that cannot be reached is left alone.
        name: Identity of the answers; the addresses where none is given, so that a server more
            or less makes other answers of them.

    Raises:
        ConfigError: No address, or not as many event endpoints as addresses.
    """

    provider = _PROVIDER

    def __init__(
        self,
        *,
        model: str,
        base_urls: Sequence[str],
        api_key: str = "",
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 60.0,
        connect_s: float = 10.0,
        attempts: int = 3,
        roles: Host = "any",
        transport: Transport = "httpx",
        kv_events: Sequence[str] = (),
        kv_topic: str = "",
        watch_s: float = 5.0,
        rest_s: float = 10.0,
        name: str = "",
    ) -> None:
        if not base_urls:
            raise ConfigError("a vLLM target needs an address: set api.base_url or api.replicas")
        if kv_events and len(kv_events) != len(base_urls):
            raise ConfigError(
                f"{len(kv_events)} endpoints of KV events for {len(base_urls)} servers: give one "
                "for each, in the same order"
            )
        self.model = model
        self._roles: Host = roles
        self._watch_s = watch_s
        self._rest_s = rest_s
        self._http = httpx.AsyncClient(
            headers={**_authorization(api_key), **(headers or {})},
            timeout=httpx.Timeout(timeout_s, connect=connect_s),
        )
        self.replicas = tuple(
            Replica(
                root_url=url.rstrip("/").removesuffix("/v1"),
                target=OpenAITarget(
                    model=model,
                    base_url=url,
                    api_key=api_key,
                    headers=headers,
                    timeout_s=timeout_s,
                    connect_s=connect_s,
                    attempts=attempts if len(base_urls) == 1 else 1,
                    provider=_PROVIDER,
                    roles=roles,
                    transport=transport,
                ),
            )
            for url in base_urls
        )
        self.name = name or ",".join(sorted(r.target.name for r in self.replicas))
        self.router = Router(len(self.replicas))
        for replica, endpoint in zip(self.replicas, kv_events, strict=False):
            self._mirror(replica, endpoint, kv_topic)
        self._lost: list[Callable[[], None]] = []
        self._watching: asyncio.Task[None] | None = None

    def _mirror(self, replica: Replica, endpoint: str, topic: str) -> None:
        replica.mirror = mirror = EngineMirror()
        replica.events = KvEventSubscriber(
            endpoint, take=mirror.apply, lost=lambda: self._forget(replica), topic=topic
        )

    # --- life ----------------------------------------------------------------------------------

    def watch(self, lost: Callable[[], None]) -> None:
        """Have `lost` called when no server holds what it was sent: the only one, or the last of
        several that was restarted or went away.
        """
        self._lost.append(lost)

    async def start(self) -> None:
        """Follow the servers' events and watch their metrics. Done by the first call otherwise.

        Raises:
            ConfigError: An endpoint of KV events is malformed, or a package is missing.
        """
        if self._watching is not None:
            return
        self._watching = asyncio.create_task(self._watch(), name="ragcache-vllm-watch")
        for replica in self.replicas:
            if replica.events is not None:
                await replica.events.start()

    async def close(self) -> None:
        """Close the connections."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
            self._watching = None
        for replica in self.replicas:
            if replica.events is not None:
                await replica.events.close()
            await replica.target.close()
        await self._http.aclose()

    async def _watch(self) -> None:
        while True:
            for replica in self.replicas:
                try:
                    await self.refresh(replica)
                except TargetError as error:
                    _log.debug("%s is not to be watched now: %s", replica.root_url, error)
            await asyncio.sleep(self._watch_s)

    async def refresh(self, replica: Replica) -> EngineState:
        """Read a server's metrics; a restart empties what is believed of its cache.

        Raises:
            TargetError: It cannot be reached, or has no metrics.
        """
        state = read_metrics((await self._got("GET", replica, "/metrics")).text)
        if restarted(replica.state, state):
            _log.info("%s was restarted: its KV cache is empty", replica.root_url)
            self._forget(replica)
        replica.state = state
        replica.down_until_s = 0.0
        return state

    def _forget(self, replica: Replica) -> None:
        self.router.forget(self.replicas.index(replica))
        if replica.mirror is not None:
            replica.mirror.apply(AllBlocksCleared())
        if not self.router.remembers:
            for lost in self._lost:
                lost()

    # --- what the engine knows -------------------------------------------------------------------

    @property
    def block_size(self) -> int | None:
        """Tokens of a KV block, where a server has told."""
        sizes = [r.state.block_size for r in self.replicas if r.state.block_size]
        return sizes[0] if sizes else None

    @property
    def mirrors(self) -> tuple[EngineMirror, ...]:
        """What the servers' caches hold by their own events."""
        return tuple(r.mirror for r in self.replicas if r.mirror is not None)

    @property
    def held(self) -> Container[bytes] | None:
        """Names of the KV blocks that any server holds; None where no events come."""
        return _AnyOf(self.mirrors) if self.mirrors else None

    async def tokenize(self, call: Call, *, replica: int = 0) -> tuple[int, ...]:
        """Return the token ids of a prompt as a server makes them, its chat template applied.

        Raises:
            TargetError: The server refused, or cannot be reached.
        """
        sent = arguments(call, _PROVIDER, host=self._roles)
        body = {name: sent[name] for name in _TOKENIZE_FIELDS if name in sent}
        reply = await self._got("POST", self.replicas[replica], "/tokenize", json=body)
        return tuple(reply.json()["tokens"])

    async def _got(self, method: str, replica: Replica, path: str, **body: Any) -> httpx.Response:
        try:
            reply = await self._http.request(method, f"{replica.root_url}{path}", **body)
            return reply.raise_for_status()
        except httpx.HTTPStatusError as error:
            raise TargetError(
                f"{replica.root_url}{path} answered {error.response.status_code}",
                status=error.response.status_code,
                body=error.response.text,
            ) from error
        except httpx.HTTPError as error:
            raise TargetError(
                f"{replica.root_url}{path} cannot be reached: {error or type(error).__name__}",
                kind="connection",
            ) from error

    async def _foreseen(self, replica: int, call: Call) -> _Foreseen:
        """Return what a server will not compute, by its own events, and where the prompt stands."""
        mirror = self.replicas[replica].mirror
        if mirror is None:
            return _UNFORESEEN
        try:
            tokens = await self.tokenize(call, replica=replica)
        except TargetError as error:
            _log.debug("no prediction: %s", error)
            return _UNFORESEEN
        size = mirror.block_size or self.block_size or 0
        names = block_chain(tokens, size, salt=call.cache_salt) if size else ()
        return _Foreseen(
            predicted_tokens=mirror.cached_tokens(tokens, salt=call.cache_salt),
            engine=EngineBlocks(names=names, block_size=size, prompt_tokens=len(tokens))
            if size
            else None,
        )

    # --- calls ---------------------------------------------------------------------------------

    async def complete(self, call: Call) -> Completion:
        """Return the whole answer. Raises TargetError."""
        await self.start()
        links, tried = links_of(call), set[int]()
        while True:
            at = self._chosen(links, tried)
            foreseen = await self._foreseen(at, call)
            with self._under_way(at, links):
                try:
                    completion = await self.replicas[at].target.complete(call)
                except TargetError as error:
                    self._failed(at, error, tried)
                else:
                    return foreseen.on(completion)

    async def stream(self, call: Call) -> AsyncGenerator[Chunk, None]:
        """Yield the answer in pieces; the last one carries the completion. Raises TargetError.

        A server that fails before its first piece is replaced by another one.
        """
        await self.start()
        links, tried, begun = links_of(call), set[int](), False
        while True:
            at = self._chosen(links, tried)
            foreseen = await self._foreseen(at, call)
            with self._under_way(at, links):
                try:
                    stream = self.replicas[at].target.stream(call)
                    async with contextlib.aclosing(stream) as pieces:
                        async for chunk in pieces:
                            begun = True
                            yield _with_prediction(chunk, foreseen)
                except TargetError as error:
                    self._failed(at, error, tried, begun=begun)
                else:
                    return

    def _chosen(self, links: Sequence[Link], tried: set[int]) -> int:
        now_s = time.monotonic()
        left = set(range(len(self.replicas))) - tried
        up = {at for at in left if self.replicas[at].down_until_s <= now_s}
        # Where all are down, one of them may be back.
        return self.router.choose(links, among=up or left)

    @contextlib.contextmanager
    def _under_way(self, at: int, links: Sequence[Link]) -> Iterator[None]:
        self.router.began(at, links)
        try:
            yield
        finally:
            self.router.ended(at)

    def _failed(self, at: int, error: TargetError, tried: set[int], *, begun: bool = False) -> None:
        """Note a fault; raise it unless another server may be asked instead."""
        replica = self.replicas[at]
        if error.kind in ("connection", "timeout"):
            replica.down_until_s = time.monotonic() + self._rest_s
        if error.kind == "connection":
            self._forget(replica)
        tried.add(at)
        if begun or not is_repeatable(error) or len(tried) == len(self.replicas):
            raise error
        _log.info("%s failed, another server is asked: %s", replica.root_url, error)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Foreseen:
    predicted_tokens: int | None = None
    engine: EngineBlocks | None = None

    def on(self, completion: Completion) -> Completion:
        return replace(completion, predicted_tokens=self.predicted_tokens, engine=self.engine)


_UNFORESEEN = _Foreseen()


@dataclass(frozen=True, slots=True)
class _AnyOf:
    """The KV blocks that at least one of several engines holds."""

    mirrors: tuple[EngineMirror, ...]

    def __contains__(self, name: object) -> bool:
        return any(name in mirror for mirror in self.mirrors)


def _with_prediction(chunk: Chunk, foreseen: _Foreseen) -> Chunk:
    if chunk.completion is None:
        return chunk
    return replace(chunk, completion=foreseen.on(chunk.completion))


def _authorization(api_key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {api_key}"} if api_key else {}
