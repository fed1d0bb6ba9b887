"""Named SQL, kept in `.sql` files.

A file holds blocks that begin with `-- name: some_name`; the comment lines right below say what
the statement does. `-- include: some_name` stands for another block of the file. Values only ever
travel as parameters.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import LiteralString

_NAME = re.compile(r"^-- name: (\w+)\s*$", re.MULTILINE)
_INCLUDE = re.compile(r"^-- include: (\w+)\s*$", re.MULTILINE)


@cache
def queries(name: str) -> Mapping[str, LiteralString]:
    """Return the statements of `sql/<name>.sql` by their names."""
    pieces = _NAME.split(sql_text(f"{name}.sql"))
    bodies = {key: body.strip() for key, body in zip(pieces[1::2], pieces[2::2], strict=True)}
    # Files of the package are as trusted as its code: nothing from outside is in them.
    whole: dict[str, LiteralString] = {
        key: _INCLUDE.sub(lambda named: bodies[named[1]] + "\n", body)
        for key, body in bodies.items()
    }
    return MappingProxyType(whole)


def sql_text(path: str) -> str:
    """Return a file below `sql/`."""
    return (files("ragcache.store") / "sql" / path).read_text("utf-8")
