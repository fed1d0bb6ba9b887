"""What Postgres holds near a question, whoever wrote it: asked before a shared answer is stored."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..protocols import Neighbourhood
from ..types import Candidate, Scope
from .near import Place, near_statement
from .queries import queries
from .rows import near_candidates
from .session import Rounds

_LOOKUP, _STORING = queries("lookup"), queries("storing")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ranked:
    """An entry, how far away it is, and whether the writer's own."""

    id: str
    own: bool
    distance: float


async def neighbourhood(
    rounds: Rounds, scope: Scope, values: Mapping[str, Any], place: Place | None
) -> Neighbourhood:
    """Return what lies around; `place` is where vectors are compared, None where there is none.

    `values` are those of the scope and the keys, with `now`, `own`, `others` and the `vector`.
    """
    same = await rounds.ask(_STORING["same_words"], values, prepare=False)
    ranked = [_Ranked(id=id_, own=False, distance=0.0) for (id_,) in same]
    if place is not None:
        known = {one.id for one in ranked}
        ranked += [one for one in await _near(rounds, values, place) if one.id not in known]
    others = [one for one in ranked if not one.own][: values["others"]]
    return Neighbourhood(
        own=tuple(1.0 - one.distance for one in ranked if one.own)[: values["own"]],
        others=await _entries(rounds, scope, values["tenant"], others),
    )


async def _near(rounds: Rounds, values: Mapping[str, Any], place: Place) -> list[_Ranked]:
    anywhere = replace(place, tenant="", partition="", embedder="")
    statement = near_statement(anywhere, exactly=True, text=_STORING["find_around"])
    asked = {**values, "reach": values["own"] + values["others"]}
    rows = await rounds.ask(statement, asked, prepare=False)
    found = [_Ranked(id=id_, own=own, distance=distance) for id_, own, distance in rows]
    return [one for one in found if not math.isnan(one.distance)]


async def _entries(
    rounds: Rounds, scope: Scope, tenant: str, ranked: Sequence[_Ranked]
) -> tuple[Candidate, ...]:
    if not ranked:
        return ()
    values = {"tenant": tenant, "ids": [one.id for one in ranked]}
    found = {row[0]: row for row in await rounds.ask(_LOOKUP["find_entries"], values, last=True)}
    near = [(*found[one.id], one.distance) for one in ranked if one.id in found]
    return tuple(
        c
        for c in near_candidates(near, scope)
        if all(line.access <= scope.access for line in c.entry.lineage)
    )
