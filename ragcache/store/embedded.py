"""An embedded Postgres: started by this process, gone with it.

A small launcher over the binaries of a wheel. It never opens a folder it did not make, listens
on no network address, asks for a password (scram), keeps its socket in a folder of mode 0700
and, as root, runs the server under an unprivileged user, because Postgres refuses to be root.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import os
import secrets
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from psycopg.conninfo import make_conninfo

from ..errors import StoreError, StoreUnavailableError
from .binaries import copied, find_install
from .roles import APP, OPS, Dsns, initialise

#: The user "nobody", who exists everywhere and owns nothing.
_NOBODY = 65534
_SUPERUSER = "postgres"
#: Crash recovery of a large folder takes time; a server that says nothing by then will not.
START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 20.0
#: Longest path of a Unix socket on Linux and macOS, less the name of Postgres's own file.
_SOCKET_PATH_MAX = 103 - len("/.s.PGSQL.5432")
_SETTINGS: Mapping[str, str] = {
    "listen_addresses": "",
    "shared_buffers": "128MB",
    "max_connections": "100",
    "logging_collector": "off",
    "log_min_messages": "warning",
}

# Becomes the server: gives up its rights, asks the kernel to be stopped (fast shutdown) when the
# thread that started it ends, and looks once whether that has happened already.
_BECOME = """
import ctypes, os, sys
uid, gid, parent = map(int, sys.argv[1:4])
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(gid); os.setuid(uid)
os.umask(0o077)
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, 2)
    if os.getppid() != parent:
        sys.exit(1)
os.execv(sys.argv[4], sys.argv[4:])
"""


def default_home() -> Path:
    """Return where an embedded Postgres lives by default."""
    if os.geteuid() == 0:
        return Path("/var/lib/ragcache")
    base = os.environ.get("XDG_DATA_HOME") or str(Path.home() / ".local" / "share")
    return Path(base) / "ragcache"


def reachable(home: Path) -> Path:
    """Return a folder that the server's user can reach.

    As root the server runs as an unprivileged user, who cannot pass through a folder of mode
    0700 such as /root; opening that folder is not ours to do, so the data goes elsewhere.
    """
    home = home.absolute()
    if os.geteuid() != 0:
        return home
    passable = [p.stat().st_mode & stat.S_IXOTH for p in home.parents if p.exists()]
    if all(passable):
        return home
    return default_home() / hashlib.sha256(str(home).encode()).hexdigest()[:12]


class EmbeddedPostgres:
    """A Postgres server in a folder. Several processes may use one; the first one owns it.

    Args:
        home: Folder of its own; made where it is missing.
        settings: Server settings beside the built-in ones.
    """

    def __init__(self, home: Path, *, settings: Mapping[str, str] | None = None) -> None:
        self.home = reachable(home)
        self._settings = {**_SETTINGS, **(settings or {})}
        root = os.geteuid() == 0
        self._uid, self._gid = (_NOBODY, _NOBODY) if root else (os.getuid(), os.getgid())
        self._process: subprocess.Popen[bytes] | None = None
        self._ended = threading.Event()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def owned(self) -> bool:
        """Whether this object started the server, and will stop it."""
        return self._process is not None

    @property
    def pid(self) -> int | None:
        """The server's process id; None where it does not run."""
        return self._running_pid()

    def start(self) -> None:
        """Start the server, or join one that already runs in this folder.

        Raises:
            ConfigError: No binaries are installed.
            StoreError: The folder could not be prepared.
            StoreUnavailableError: The server did not come up; the message ends with its log.
        """
        self._prepare()
        with (self.home / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if self._running_pid() is not None:
                return
            binaries = self._binaries()
            if not (self._data / "PG_VERSION").exists():
                self._create(binaries)
            self._launch(binaries)

    def stop(self) -> None:
        """Stop the server if this object started it; waits until it is down."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGINT)
        try:
            process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGQUIT)
            process.wait(_STOP_TIMEOUT_S)
        self._ended.set()

    def dsn(
        self,
        user: str = _SUPERUSER,
        *,
        password: str | None = None,
        dbname: str = "postgres",
    ) -> str:
        """Return the DSN of a role; the password of a role of ours is known."""
        return make_conninfo(
            host=str(self._sockets),
            user=user,
            password=password or self.password(user),
            dbname=dbname,
        )

    def password(self, user: str) -> str:
        """Return a role's password, derived from the secret of this folder."""
        secret = (self.home / "secret").read_bytes()
        return hmac.new(secret, user.encode(), hashlib.sha256).hexdigest()

    # --- the folder ------------------------------------------------------------------------

    @property
    def _data(self) -> Path:
        return self.home / "data"

    @property
    def _sockets(self) -> Path:
        near = self.home / "socket"
        if len(os.fsencode(near)) <= _SOCKET_PATH_MAX:
            return near
        mark = hashlib.sha256(os.fsencode(near)).hexdigest()[:12]
        return Path(tempfile.gettempdir()) / f"ragcache-{os.geteuid()}-{mark}"

    def _prepare(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        # As root the server's own user must pass through; it can list and read nothing here.
        self.home.chmod(0o711 if os.geteuid() == 0 else 0o700)
        for folder in (self._data, self._sockets):
            folder.mkdir(mode=0o700, exist_ok=True)
            owner = folder.lstat()
            if not stat.S_ISDIR(owner.st_mode) or owner.st_uid not in (os.geteuid(), self._uid):
                raise StoreError(f"{folder} belongs to somebody else: remove it, or choose a home")
            os.chown(folder, self._uid, self._gid)
            folder.chmod(0o700)
        _write_once(self.home / "secret", secrets.token_bytes(32))

    def _binaries(self) -> Path:
        install = find_install()
        if os.geteuid() == 0:
            install = copied(install, self.home / "binaries")
        return install / "bin"

    def _create(self, binaries: Path) -> None:
        """Run initdb. The password travels in a file that only the server's user can read."""
        password = self._sockets / "initial-password"
        _write_once(password, self.password(_SUPERUSER).encode())
        os.chown(password, self._uid, self._gid)
        command = [str(binaries / "initdb"), "-D", str(self._data), "-U", _SUPERUSER]
        command += ["-A", "scram-sha-256", "--pwfile", str(password), "-E", "UTF8"]
        command += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"]
        command += ["--no-sync", "--no-instructions"]
        try:
            done = self._become(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            output, _ = done.communicate(timeout=START_TIMEOUT_S)
        finally:
            password.unlink()
        if done.returncode:
            raise StoreError(f"initdb failed in {self._data}: {_tail(output)}")

    # --- the process -----------------------------------------------------------------------

    def _become(
        self, command: list[str], *, stdout: int, stderr: int = subprocess.STDOUT
    ) -> subprocess.Popen[bytes]:
        step = [sys.executable, "-I", "-S", "-c", _BECOME]
        step += [str(self._uid), str(self._gid), str(os.getpid())]
        return subprocess.Popen(  # noqa: S603 -- our own binaries and arguments
            [*step, *command],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            cwd="/",
            start_new_session=True,
        )

    def _launch(self, binaries: Path) -> None:
        command = [str(binaries / "postgres"), "-D", str(self._data), "-k", str(self._sockets)]
        for name, value in self._settings.items():
            command += ["-c", f"{name}={value}"]
        started: list[subprocess.Popen[bytes]] = []
        self._ended.clear()
        ready = threading.Event()

        def keep() -> None:
            # The kernel stops the server when the *thread* that forked it ends: this one stays.
            with (self.home / "log").open("ab") as log:
                try:
                    started.append(self._become(command, stdout=log.fileno()))
                finally:
                    ready.set()
            self._ended.wait()

        threading.Thread(target=keep, name="ragcache-postgres", daemon=True).start()
        ready.wait()
        if not started:
            raise StoreUnavailableError(f"the embedded Postgres in {self.home} was not started")
        self._process = started[0]
        self._await_ready(started[0])

    def _await_ready(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while self._running_pid() != process.pid:
            gone = process.poll() is not None
            if gone or time.monotonic() > deadline:
                self.stop()
                log = _tail((self.home / "log").read_bytes())
                state = f"exited with {process.returncode}" if gone else "did not get ready"
                raise StoreUnavailableError(f"the embedded Postgres in {self.home} {state}: {log}")
            time.sleep(0.005)

    def _running_pid(self) -> int | None:
        """Return the pid of a live server that accepts connections, by its own pid file."""
        try:
            lines = (self._data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return None
        if len(lines) < 8 or lines[7].strip() != "ready":
            return None
        pid = int(lines[0])
        with suppress(ProcessLookupError):
            os.kill(pid, 0)
            return pid
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ensured:
    """An embedded Postgres that runs, and how its roles reach it."""

    server: EmbeddedPostgres
    dsns: Dsns


def ensure(home: Path | None = None, *, settings: Mapping[str, str] | None = None) -> Ensured:
    """Start (or join) the embedded Postgres with roles, schema and tables in place.

    Raises:
        ConfigError: No binaries are installed.
        StoreError: The server, a role or a migration failed.
    """
    server = EmbeddedPostgres(home or default_home(), settings=settings)
    server.start()
    try:
        dsns = initialise(
            server.dsn(), app_password=server.password(APP), ops_password=server.password(OPS)
        )
    except BaseException:
        server.stop()
        raise
    return Ensured(server=server, dsns=dsns)


def _write_once(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read, unless it is there."""
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return
    with os.fdopen(handle, "wb") as file:
        file.write(content)


def _tail(output: bytes) -> str:
    return output.decode("utf-8", "replace").strip()[-800:]
