"""stats and why, over requests that a pipeline has answered."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from ragcache.pipeline import guarding
from ragcache.store.traffic import TrafficWriter, Verdict
from ragcache.telemetry import savings
from ragcache.telemetry.record import assemble
from ragcache.telemetry.recorder import row_of
from tests.unit.telemetry.samples import of_hit, of_miss

from .conftest import shape

PRICES = savings.prices_of({"m": {"input": 2.0, "read": 0.5, "output": 8.0}})


@pytest.fixture
def recorded(postgres, tenant):
    """Three calls, a hit that was right and one that was wrong."""
    writer = TrafficWriter(postgres.app)
    now = datetime.now(UTC)
    events = [of_miss(tenant, f"{tenant}-m{n}") for n in range(3)]
    events += [of_hit(tenant, f"{tenant}-h{n}") for n in range(2)]
    writer.write(tenant, [row_of(assemble(e, at=now, prices=PRICES)) for e in events])
    verdicts = [
        Verdict(
            id=f"{tenant}-h{n}",
            entry="",
            agreed=not n,
            by="verification",
            at=now,
            namespace="default",
            model="m",
            version="v1",
        )
        for n in range(2)
    ]
    writer.write(tenant, (), verdicts)
    writer.close()
    return tenant


def test_stats_give_the_four_figures_and_their_reasons(cli, recorded):
    found = cli("stats", "--tenant", recorded, "--json").json
    figures = found["figures"]
    assert (figures["requests"], figures["hits_semantic"]) == (5, 2)
    assert figures["semantic_hit_rate"] == 0.4
    assert round(figures["prefix_hit_rate"], 6) == 0.682667
    assert (figures["judged"], figures["wrong"]) == (2, 1)
    assert figures["wrong_of_judged"] == 0.5
    assert figures["bad_hit_bound"] > 0.5
    assert round(figures["ttft_saved_s"], 3) == 0.397
    assert round(figures["saved"], 6) == round(3 * 0.006144 + 0.0034, 6)
    assert found["misses"] == {"no_candidate": 3}
    assert found["lost_prefix"] == {"evicted": 3 * 904}
    assert list(found["groups"]) == [recorded]


def test_stats_for_people_say_the_same(cli, recorded):
    shown = cli("stats", "--tenant", recorded, "--by", "version").out
    for word in (
        "40.0%",
        "68.3%",
        "1 of 2, at most",
        "not certified",
        "-0.40 s",
        "no_candidate",
        "evicted",
        "v1",
    ):
        assert word in shown


def test_stats_have_a_stable_schema(cli, recorded):
    found = cli("stats", "--tenant", recorded, "--json").json
    assert set(found) == {
        "since",
        "figures",
        "groups",
        "misses",
        "lost_prefix",
        "namespaces",
        "embedders",
    }
    assert shape(found["figures"]) == {
        **dict.fromkeys(
            [
                "requests",
                "hits_exact",
                "hits_semantic",
                "stale",
                "bypassed",
                "collapsed",
                "calls",
                "errors",
                "input",
                "cached",
                "output",
                "predicted",
                "saved_input",
                "saved_output",
                "unpriced",
                "judged",
                "wrong",
                "reported",
                "called_ttfts",
                "hit_ttfts",
            ],
            "int",
        ),
        **dict.fromkeys(
            [
                "spent",
                "uncached",
                "spared",
                "lost",
                "verification",
                "called_ttft_s",
                "hit_ttft_s",
                "prefix_hit_rate",
                "hit_rate",
                "semantic_hit_rate",
                "bad_hit_rate",
                "wrong_of_judged",
                "bad_hit_bound",
                "bad_of_all_bound",
                "called_ttft_mean_s",
                "hit_ttft_mean_s",
                "ttft_saved_s",
                "saved_share",
                "saved_by_prefix",
                "saved_by_hits",
                "saved",
            ],
            "float",
        ),
        "certified": "bool",
    }


def test_stats_of_nothing_say_so_without_a_zero_that_means_unknown(cli, tenant):
    found = cli("stats", "--tenant", tenant, "--json").json
    assert found["figures"]["requests"] == 0
    assert found["figures"]["prefix_hit_rate"] is None
    assert found["figures"]["saved"] is None


def test_stats_watch_looks_again_until_it_is_stopped(cli, recorded, monkeypatch):
    from ragcache.cli import traffic

    looks = []

    def stop_after_three(seconds):
        looks.append(seconds)
        if len(looks) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(traffic.time, "sleep", stop_after_three)
    shown = cli("stats", "--tenant", recorded, "--watch", "--every", "0.5", code=130)
    assert looks == [0.5, 0.5, 0.5]
    assert "no_candidate" in shown.out


def test_why_tells_the_story_of_a_request(cli, recorded):
    told = cli("why", f"{recorded}-m0").out
    assert "no stored question was near enough" in told
    found = cli("why", f"{recorded}-h1", "--tenant", recorded, "--json").json
    assert found["request"]["status"] == "hit_semantic"
    assert any("judged wrong" in sentence for sentence in found["story"])


def test_why_of_an_unknown_or_an_unclear_id_says_what_to_do(cli, recorded):
    unknown = cli("why", "nobody-asked-this", code=1).err
    assert "telemetry.record" in unknown
    unclear = cli("why", f"{recorded}-m", "--tenant", recorded, code=1).err
    assert "more than one" in unclear
    assert f"{recorded}-m1" in unclear


def test_feedback_takes_a_bad_answer_and_its_saving_back(cli, recorded):
    before = cli("stats", "--tenant", recorded, "--json").json["figures"]
    told = cli("feedback", f"{recorded}-h0", "--tenant", recorded, "--reason", "wrong port").out
    assert "out of service" in told
    after = cli("stats", "--tenant", recorded, "--json").json["figures"]
    assert after["reported"] == before["reported"] + 1
    assert round(before["saved"] - after["saved"], 6) == 0.0034
    assert "feedback" in cli("why", f"{recorded}-h0").out


def test_feedback_on_an_unknown_request_changes_nothing(cli, recorded):
    assert "no request" in cli("feedback", "nobody-asked-this", code=1).err


async def test_feedback_reaches_the_guard_of_running_processes(
    cli, recorded, make, postgres, monkeypatch
):
    """The verdict waits in the store; whoever holds the error rate counts it once."""
    deployment = f"deployment-of-{recorded}"
    monkeypatch.setattr(guarding, "told_key", lambda _: f"{deployment}:told")
    parts = {"deployment": deployment, "embedder": None, "clock": lambda: datetime.now(UTC)}
    cache, other = await make(**parts), await make(**parts)
    cli("feedback", f"{recorded}-h0", "--tenant", recorded)
    for running in (cache, other):
        await running._guarding.hand_in()
        await running._guarding.hand_in()
        evidence = running._guarding._state.levels[""]
        assert (evidence.judged.sum(), evidence.wrong.sum()) == (1.0, 1.0)
    await cache._parts.settled()
    late = await make(**parts)
    evidence = late._guarding._state.levels[""]
    assert (evidence.judged.sum(), evidence.wrong.sum()) == (1.0, 1.0)
