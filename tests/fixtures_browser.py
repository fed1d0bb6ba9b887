"""A headless browser that looks at a page as a person would: Debian's chromium, over its own
debugging protocol."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import ClientConnection, connect

_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--remote-debugging-port=0",
)
_START_S = 60.0


@dataclass
class Looked:
    """What a look at a page has shown."""

    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)
    picture: bytes = b""


class Browser:
    """A running browser with one tab."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._number = 0
        self._looked = Looked()
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        attached = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")

    _session = ""

    def look(
        self, page: Path, *, width: int, dark: bool = False, values: dict[str, str] | None = None
    ) -> Looked:
        """Open a file in a window of a width; return what was seen, and values of expressions."""
        self._looked = Looked()
        self._call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", features=[scheme])
        self._call("Page.navigate", url=page.absolute().as_uri())
        self._wait_for("Page.loadEventFired")
        for name, expression in (values or {}).items():
            found = self._call("Runtime.evaluate", expression=expression, returnByValue=True)
            self._looked.values[name] = found["result"].get("value")
        shot = self._call("Page.captureScreenshot", captureBeyondViewport=True)
        self._looked.picture = base64.b64decode(shot["data"])
        return self._looked

    def close(self) -> None:
        self._call("Browser.close", session=False)

    def _call(self, method: str, *, session: bool = True, **params: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if session and self._session:
            message["sessionId"] = self._session
        self._socket.send(json.dumps(message))
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return dict(answer["result"])

    def _wait_for(self, method: str) -> None:
        while self._receive().get("method") != method:
            pass

    def _receive(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self._socket.recv(timeout=60))
        params = message.get("params", {})
        match message.get("method"):
            case "Network.requestWillBeSent":
                self._looked.requests.append(params["request"]["url"])
            case "Log.entryAdded":
                self._looked.complaints.append(params["entry"]["text"])
            case "Runtime.exceptionThrown":
                self._looked.complaints.append(str(params["exceptionDetails"]))
            case "Runtime.consoleAPICalled":
                self._looked.complaints.append(f"console.{params['type']}")
        return message


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One headless browser for the session."""
    command = shutil.which("chromium")
    assert command, "no chromium: apt-get install chromium (requirements/debian.txt)"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [command, *_FLAGS, f"--user-data-dir={profile}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": profile},
        )
        try:
            address = _address(Path(profile) / "DevToolsActivePort", process)
            with connect(address, max_size=None, open_timeout=30) as socket:
                running = Browser(socket)
                yield running
                running.close()
            process.wait(timeout=20)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait(timeout=20)


def _address(file: Path, process: subprocess.Popen[bytes]) -> str:
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline and process.poll() is None:
        if file.is_file() and len(lines := file.read_text().splitlines()) >= 2:
            return f"ws://127.0.0.1:{lines[0]}{lines[1]}"
        time.sleep(0.05)
    raise AssertionError("chromium did not start")
