"""A real pgbouncer in transaction mode (Debian package `pgbouncer`), in front of a test database.

In this mode the next transaction of a client may run on another server connection, and a session
setting that somebody leaves behind is inherited by somebody else.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from ragcache.store.roles import Dsns

_NOBODY = 65534
_PORT = 6543


@pytest.fixture(scope="session")
def pgbouncer(postgres: Dsns) -> Iterator[str]:
    """The app role's DSN of the shared database, through pgbouncer in transaction mode."""
    with pooled(postgres.app) as dsn:
        yield dsn


@contextmanager
def pooled(dsn: str, *, server_connections: int = 2) -> Iterator[str]:
    """Run pgbouncer in front of a DSN; yield the DSN that goes through it."""
    program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
    assert program, "these tests need pgbouncer: apt-get install pgbouncer"
    parts = conninfo_to_dict(dsn)
    with tempfile.TemporaryDirectory(prefix="rc-bouncer-") as folder:
        home = Path(folder)
        (home / "users").write_text(f'"{parts["user"]}" "{parts["password"]}"\n')
        server = " ".join(f"{k}={parts[k]}" for k in ("host", "port", "dbname") if k in parts)
        (home / "ini").write_text(
            f"[databases]\n{parts['dbname']} = {server}\n"
            f"[pgbouncer]\nlisten_addr =\nlisten_port = {_PORT}\nunix_socket_dir = {home}\n"
            f"auth_type = scram-sha-256\nauth_file = {home}/users\npool_mode = transaction\n"
            f"default_pool_size = {server_connections}\nmax_client_conn = 100\n"
            f"logfile = {home}/log\npidfile = {home}/pid\n"
        )
        root = os.geteuid() == 0
        if root:
            for path in (home, *home.iterdir()):
                os.chown(path, _NOBODY, _NOBODY)
        process = subprocess.Popen(
            [program, str(home / "ini")],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            **({"user": _NOBODY, "group": _NOBODY, "extra_groups": []} if root else {}),
        )
        through = make_conninfo(dsn, host=str(home), port=_PORT)
        try:
            _await(through, process, home / "log")
            yield through
        finally:
            process.terminate()
            process.wait(10)


def _await(dsn: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 10
    while True:
        try:
            psycopg.connect(dsn, connect_timeout=2).close()
        except psycopg.OperationalError:
            text = log.read_text() if log.exists() else ""
            assert process.poll() is None, f"pgbouncer ended: {text[-500:]}"
            assert time.monotonic() < deadline, f"pgbouncer does not answer: {text[-500:]}"
            time.sleep(0.02)
        else:
            return
