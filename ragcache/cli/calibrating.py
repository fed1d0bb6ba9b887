"""The verb that finds a threshold: calibrate."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..errors import ConfigError
from .console import print_json, print_table, say
from .options import AnyTenant, AsJson, Config, OpsDsn, span
from .places import database, now_utc, settings_from
from .verbs import add

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..lookup.calibration import Calibration, Difference, Judged, Point
    from ..protocols import Embedder

    Parts = Mapping[tuple[str, str], Calibration]
    Per = Literal["all", "hits"]

_COLUMNS = ("threshold", "served", "wrong", "wrong of hits", "at most", "wrong of all", "recall")


def add_to(app: typer.Typer) -> None:
    """Add the verb."""
    add(app, calibrate, "ragcache calibrate pairs.jsonl --error 0.005 --plot curve.png")


def calibrate(
    *,
    pairs: Annotated[
        Path | None,
        typer.Argument(help='Labelled pairs, JSONL: {"a", "b", "same"}, and "namespace".'),
    ] = None,
    from_traffic: Annotated[
        bool, typer.Option("--from-traffic", help="From judged hits instead of pairs.")
    ] = False,
    ab: Annotated[
        tuple[float, float] | None,
        typer.Option(help="Compare two thresholds on the same judged hits."),
    ] = None,
    error: Annotated[float, typer.Option(help="Wrong answers to be held below.")] = 0.005,
    per: Annotated[
        Literal["all", "hits"], typer.Option(help="Wrong of all lookups, or of hits.")
    ] = "all",
    plot: Annotated[
        Path | None, typer.Option(help="Write the curve to this .png or .svg file.")
    ] = None,
    curve: Annotated[Path | None, typer.Option(help="Write the curve as JSON.")] = None,
    fit: Annotated[
        Path | None,
        typer.Option(help="Fit a second opinion on half of the pairs, and write it to this file."),
    ] = None,
    since: Annotated[str, typer.Option(help="How far back traffic counts.")] = "30d",
    tenant: AnyTenant = None,
    dsn: OpsDsn = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Find the similarity threshold for a wanted error, with its upper bound.

    Pairs are asked of the embedder in the settings and of the shipped gates, and a threshold is
    found for each namespace and language among them. "Not certified" is said until the evidence
    suffices: 598 judged without an error for half a percent. With --fit the threshold is that of
    a second opinion, on the half of the pairs that it was not fitted on.
    """
    if (pairs is None) == (not (from_traffic or ab)):
        raise typer.BadParameter("give a file of pairs, or --from-traffic or --ab")
    if pairs is None and fit is not None:
        raise typer.BadParameter("--fit needs a file of pairs")
    if pairs is not None and fit is not None:
        found = _fitted(pairs, fit, config, error=error, per=per)
        _tell(found, plot, curve, as_json, _of_verifier(found, fit))
        return
    if pairs is not None:
        whole, parts = _from_pairs(pairs, config, error=error, per=per)
        _tell(whole, plot, curve, as_json, _of_lookup(whole, parts), parts)
        return
    with database(config, dsn) as place:
        judged = _judged(place.ops, since=since, tenant=tenant)
    if ab is not None:
        _tell_two(judged, *ab, as_json=as_json)
        return
    from ..lookup.calibration import calibrate as run

    whole = run(judged, error=error, per=per)
    _tell(whole, plot, curve, as_json, _of_lookup(whole, {}))


def _embedder(config: Path | None) -> Embedder:
    from ..factory import embedder_from

    embedder = embedder_from(settings_from(config))
    if embedder is None:
        raise ConfigError("the settings name no embedder: set embedding.model")
    return embedder


def _from_pairs(
    path: Path, config: Path | None, *, error: float, per: Per
) -> tuple[Calibration, Parts]:
    from ..bench.answers import pairs_of
    from ..bench.calibrating import from_pairs
    from ..bench.questions import rows_of

    return from_pairs(pairs_of(rows_of(path)), _embedder(config), error=error, per=per)


def _fitted(path: Path, to: Path, config: Path | None, *, error: float, per: Per) -> Calibration:
    from ..bench.answers import pairs_of
    from ..bench.calibrating import fitted
    from ..bench.questions import rows_of

    made = fitted(pairs_of(rows_of(path)), _embedder(config), error=error, per=per)
    to.write_text(json.dumps(made.ranker.as_json()), encoding="utf-8")
    return made.found


def _judged(ops: str, *, since: str, tenant: str | None) -> list[Judged]:
    from ..lookup.calibration import Judged
    from ..store import traffic

    rows = traffic.recent(ops, since=now_utc() - span(since), tenant=tenant)
    found = [
        Judged(similarity=row["similarity"], same=row["agreed"])
        for row in rows
        if row["agreed"] is not None and row["similarity"] is not None
    ]
    if not found:
        raise ConfigError(
            f"no hit of the last {since} was judged: the guard verifies a share of semantic hits "
            "by itself, and telemetry.record keeps the verdicts"
        )
    return found


def _of_lookup(whole: Calibration, parts: Parts) -> list[str]:
    """Return settings with the thresholds; one for each part where there are several."""
    lines = [] if whole.chosen is None else ["[lookup]", *_thresholds(whole, whole.chosen)]
    for (namespace, language), part in parts.items() if len(parts) > 1 else ():
        if part.chosen is None:
            continue
        inner = f".languages.{json.dumps(language)}" if language else ""
        outer = f".namespaces.{json.dumps(namespace)}" if namespace else ""
        lines += [f"[lookup{outer}{inner}]", *_thresholds(part, part.chosen)]
    return lines


def _thresholds(found: Calibration, chosen: Point) -> list[str]:
    """Before traffic is judged, only a certified threshold stands in for its bound."""
    value = f"{chosen.threshold:.4f}"
    certified = [f"uncertified_threshold = {value}"] if found.certified else []
    return [f"threshold = {value}", *certified]


def _of_verifier(found: Calibration, fit: Path) -> list[str]:
    if found.chosen is None:
        return []
    named = json.dumps(f"fitted:{fit}")
    return ["[verifier]", f"model = {named}", f"threshold = {found.chosen.threshold:.4f}"]


def _tell(
    found: Calibration,
    plot: Path | None,
    curve: Path | None,
    as_json: bool,
    settings: Sequence[str],
    parts: Parts | None = None,
) -> None:
    from ..bench.calibrating import as_json as plain

    if plot is not None:
        _draw(found, plot)
    if curve is not None:
        curve.write_text(json.dumps(plain(found, parts), indent=2) + "\n", encoding="utf-8")
    if as_json:
        print_json(plain(found, parts))
        return
    if found.chosen is None:
        say(f"no threshold keeps wrong of {found.per} at most {found.error:.2%}")
        return
    print_table("threshold", _COLUMNS, [_row(found.chosen)])
    say("certified at 95 %" if found.certified else "not certified: too few pairs for the bound")
    if parts is not None and len(parts) > 1:
        _tell_parts(parts)
    say("in the settings:")
    say("\n".join(settings))


def _tell_parts(parts: Parts) -> None:
    rows = [
        (namespace or "-", language or "-", *_row(part.chosen))
        for (namespace, language), part in parts.items()
        if part.chosen is not None
    ]
    print_table("by namespace and language", ("namespace", "language", *_COLUMNS), rows)


def _row(point: Point) -> Sequence[Any]:
    return (
        f"{point.threshold:.4f}",
        point.served,
        point.wrong,
        f"{point.wrong_hits:.2%}",
        f"{point.upper_hits:.2%}",
        f"{point.wrong_all:.2%}",
        f"{point.recall:.1%}",
    )


def _tell_two(judged: list[Judged], first: float, second: float, *, as_json: bool) -> None:
    from ..lookup.calibration import compare

    found = compare(judged, first, second)
    if as_json:
        print_json(_plain(found, len(judged)))
        return
    rows = [_row(found.first), _row(found.second)]
    print_table(f"on the same {len(judged)} judged hits", _COLUMNS, rows)
    interval = f"{found.low:+.2%} to {found.high:+.2%}"
    say(f"difference of wrong of all: {found.difference:+.2%} ({interval})")


def _plain(found: Difference, judged: int) -> dict[str, Any]:
    return {
        "judged": judged,
        "first": found.first.as_json(),
        "second": found.second.as_json(),
        "difference": found.difference,
        "low": found.low,
        "high": found.high,
    }


def _draw(found: Calibration, path: Path) -> None:
    from ..telemetry.report.curve import drawing

    if path.suffix == ".svg":
        path.write_text(drawing(found), encoding="utf-8")
    elif path.suffix == ".png":
        from .picture import png

        path.write_bytes(png(found))
    else:
        raise ConfigError(f"{path}: the curve is drawn as .png or .svg")
