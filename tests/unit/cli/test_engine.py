"""vllm-args prints the command that fits the settings; doctor --target tells what a server says."""

from __future__ import annotations

import json
import shlex
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from typer.testing import CliRunner

from ragcache.cli.app import app
from ragcache.cli.engine import serve_command
from ragcache.errors import ConfigError
from ragcache.settings import Settings
from tests.unit.targets.test_engine_state import TEXT
from tests.unit.test_shapes import SERVER


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "config.toml"
    path.write_text(text)
    return path


def test_the_servers_shape_becomes_a_command(tmp_path):
    result = CliRunner().invoke(app, ["vllm-args", "--config", str(write(tmp_path, SERVER))])
    assert result.exit_code == 0, result.stderr
    words = shlex.split(result.stdout)
    assert words[:3] == ["vllm", "serve", "qwen2.5-72b-instruct"]
    for flag, value in {
        "--gpu-memory-utilization": "0.85",
        "--block-size": "16",
        "--max-model-len": "32768",
    }.items():
        assert words[words.index(flag) + 1] == value
    assert {"--enable-prefix-caching", "--enable-prompt-tokens-details"} <= set(words)
    assert "--port" not in words  # the gateway's port is not the engine's


def test_a_preset_can_be_chosen_and_what_the_platform_refuses_is_told(tmp_path):
    path = write(tmp_path, SERVER)
    asked = ["vllm-args", "--config", str(path), "--preset", "many_tenants", "--json"]
    result = CliRunner().invoke(app, asked)
    assert result.exit_code == 0, result.stderr
    words = json.loads(result.stdout)["command"]
    assert words[words.index("--kv-cache-dtype") + 1] == "fp8"
    assert words[words.index("--gpu-memory-utilization") + 1] == "0.85"
    refused = CliRunner().invoke(app, [*asked, "--platform", "cpu"])
    assert refused.exit_code == 1
    assert "multiples of 32" in refused.stderr
    unknown = CliRunner().invoke(app, ["vllm-args", "--config", str(path), "--preset", "huge"])
    assert unknown.exit_code == 1
    assert "engine.preset" in unknown.stderr


def test_the_port_is_that_of_the_address():
    settings = Settings.load(model={"name": "m"}, api={"base_url": "http://127.0.0.1:8100/v1"})
    words = serve_command(settings)
    assert words[words.index("--port") + 1] == "8100"
    with pytest.raises(ConfigError, match=r"model\.name is missing"):
        serve_command(Settings.load())
    with pytest.raises(ConfigError, match="did you mean 'block_size'"):
        serve_command(Settings.load(model={"name": "m"}, engine={"args": {"blok_size": 1}}))


class Server:
    """A server with models and figures."""

    def __init__(self) -> None:
        self.metrics = TEXT
        self.status = 200
        self.base_url = ""

    async def models(self, request) -> Response:
        return JSONResponse({"data": []}, status_code=self.status)

    async def figures(self, request) -> Response:
        return PlainTextResponse(self.metrics)


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    routes = [Route("/v1/models", made.models), Route("/metrics", made.figures)]
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    made.base_url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    config = uvicorn.Config(Starlette(routes=routes), log_level="critical", lifespan="off")
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run, args=([listener],), daemon=True)
    thread.start()
    while not running.started:
        time.sleep(0.005)
    yield made
    running.should_exit = True
    thread.join(timeout=10)
    listener.close()


def look(tmp_path: Path, base_url: str):
    path = tmp_path / "ragcache.toml"
    path.write_text(f'[api]\nbase_url = "{base_url}"\nprovider = "vllm"\n')
    return CliRunner().invoke(app, ["doctor", "--target", "--config", str(path), "--json"])


def test_doctor_tells_what_an_engine_says_and_what_that_advises(tmp_path, server):
    result = look(tmp_path, server.base_url)
    assert result.exit_code == 0, result.output
    found = {row["name"]: row["detail"] for row in json.loads(result.stdout)["findings"]}
    assert "KV usage 25%, prefix hit rate 49%" in found["engine"]
    assert "3 times a running request was put back" in found["advice"]


def test_doctor_fails_where_nothing_can_be_reused(tmp_path, server):
    server.metrics = TEXT.replace('enable_prefix_caching="True"', 'enable_prefix_caching="False"')
    result = look(tmp_path, server.base_url)
    assert result.exit_code == 3
    assert "--enable-prefix-caching" in result.stdout


def test_doctor_takes_a_server_without_vllms_figures(tmp_path, server):
    server.metrics = "up 1\n"
    result = look(tmp_path, server.base_url)
    assert result.exit_code == 0
    assert [row["name"] for row in json.loads(result.stdout)["findings"]] == ["target"]


def test_doctor_tells_who_cannot_be_reached(tmp_path, server):
    server.status = 401
    refused = look(tmp_path, server.base_url)
    assert refused.exit_code == 3
    assert "answered 401" in refused.stdout
    gone = look(tmp_path, "http://127.0.0.1:9/v1")
    assert gone.exit_code == 3
    assert "cannot be reached" in gone.stdout
    path = tmp_path / "none.toml"
    path.write_text("")
    nobody = CliRunner().invoke(app, ["doctor", "--target", "--config", str(path)])
    assert nobody.exit_code == 3
