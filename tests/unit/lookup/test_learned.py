"""A second opinion fitted on labelled pairs."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ragcache.bench.rewording import paraphrases, traps
from ragcache.errors import ConfigError
from ragcache.lookup.features import features, senses, tokens, vocabulary
from ragcache.lookup.gates import gate_reason
from ragcache.lookup.learned import Ranker, fit, fit_line
from ragcache.lookup.policy import LookupPolicy
from ragcache.lookup.reading import Reading, read
from ragcache.lookup.trees import Trees, grow
from ragcache.types import Embedding


def pairs(count: int, seed: int) -> tuple[list[tuple[Reading, Reading, float]], np.ndarray]:
    """Made-up pairs without an embedder: the similarity says nothing."""
    rows = [*traps(count, seed=seed), *paraphrases(count, seed=seed)]
    same = np.array([row.same for row in rows], dtype=bool)
    return [(read(row.stored), read(row.asked), 0.9) for row in rows], same


@pytest.fixture(scope="module")
def ranker() -> Ranker:
    return fit(*pairs(120, seed=3), embedder="none", trees=20)


def test_it_tells_traps_from_paraphrases_that_it_has_not_seen(ranker: Ranker) -> None:
    rows, same = pairs(60, seed=4)
    scores = ranker.scores(rows)
    assert scores[same].mean() > 0.8
    assert scores[~same].mean() < 0.2


def test_it_says_the_same_after_a_way_through_a_file(ranker: Ranker) -> None:
    rows, _ = pairs(20, seed=5)
    again = Ranker.from_json(json.loads(json.dumps(ranker.as_json())))
    assert again.embedder == "none"
    assert np.allclose(again.scores(rows), ranker.scores(rows), atol=0.01)


def test_which_question_came_first_does_not_matter(ranker: Ranker) -> None:
    rows, _ = pairs(20, seed=6)
    turned = [(asked, stored, similarity) for stored, asked, similarity in rows]
    assert np.allclose(ranker.scores(rows), ranker.scores(turned), atol=0.05)


def test_a_file_of_another_version_or_shape_is_refused(ranker: Ranker) -> None:
    plain = ranker.as_json()
    with pytest.raises(ValueError, match="another version"):
        Ranker.from_json({**plain, "schema": 1})
    with pytest.raises(KeyError):
        Ranker.from_json({name: value for name, value in plain.items() if name != "line"})
    looped = {**plain["trees"], "left": np.zeros_like(plain["trees"]["left"]).tolist()}
    with pytest.raises(ValueError, match="behind its parent"):
        Trees.from_json(looped)


def embedded(count: int, seed: int) -> tuple[list[tuple[Reading, Reading, float]], np.ndarray]:
    """Pairs of one text each, whose vectors differ in the third direction where answers do."""
    rng = np.random.default_rng(seed)
    same = rng.random(count) > 0.5
    rows = []
    for at in range(count):
        one = rng.normal(size=8)
        other = one + np.where(np.arange(8) == 2, 0.0 if same[at] else 1.5, 0.0)
        stored, asked = (
            read(text := "How do I cancel?", Embedding(text=text, vector=v.astype("f")))
            for v in (one, other)
        )
        rows.append((stored, asked, 0.9))
    return rows, same


def test_sentence_vectors_tell_what_no_word_does() -> None:
    fitted = fit(*embedded(1_500, seed=1), trees=2)
    rows, same = embedded(300, seed=2)
    assert ((fitted.scores(rows) > np.median(fitted.scores(rows))) == same).mean() > 0.75
    again = Ranker.from_json(json.loads(json.dumps(fitted.as_json())))
    assert np.allclose(again.scores(rows), fitted.scores(rows), atol=0.01)
    bare = [(read(one.text), read(other.text), alike) for one, other, alike in rows]
    assert np.ptp(fitted.scores(bare)) < 1e-9, "control: without vectors the pairs are all alike"
    assert np.isfinite(fitted.scores(bare)).all()


def test_without_sentence_vectors_nothing_is_fitted_to_them(ranker: Ranker) -> None:
    assert ranker.sense is None
    assert senses(read("How do I cancel?"), read("How do I pay?")) is None


def named(count: int, *, same: bool) -> list[tuple[Reading, Reading, float]]:
    """Pairs of which one names a product (no matter here) or both a town (another answer)."""
    one, other = ("", "Acme ") if same else ("Kobe ", "Zwolle ")
    asked = "How do I open the {}office at day {}?"
    return [
        (read(asked.format(one, at)), read(asked.format(other, at)), 0.9) for at in range(count)
    ]


def test_names_are_learned_from_enough_pairs_of_either_label() -> None:
    rows, labels = pairs(120, seed=3)
    differing = [*named(60, same=True), *named(60, same=False)]
    told = np.array([True] * 60 + [False] * 60)
    taught = fit([*rows, *differing], np.concatenate([labels, told]), trees=20)
    assert taught.names
    assert Ranker.from_json(json.loads(json.dumps(taught.as_json()))).names
    few = [*named(60, same=False), *named(40, same=True)]
    untaught = fit([*rows, *few], np.concatenate([labels, ~told[:100]]), trees=2)
    assert not untaught.names, "control: no opinion about names from forty pairs"


def test_only_an_opinion_that_knows_names_overrules_their_gate() -> None:
    ((stored, asked, _),) = named(1, same=True)
    policy = LookupPolicy()
    assert gate_reason(stored, asked, policy) == "entity"
    assert gate_reason(stored, asked, policy, names_told=True) in ("", "words")
    per = read("What is the fee per day?"), read("What is the fee per week?")
    assert gate_reason(*per, policy, names_told=True) == "entity", "no name: two of one kind"
    number = read("Is the Kobe fee 20 euro?"), read("Is the Acme fee 30 euro?")
    assert gate_reason(*number, policy, names_told=True) == "number"


def test_too_few_pairs_are_said_to_be_too_few() -> None:
    with pytest.raises(ConfigError, match="50 pairs of either label"):
        fit(*pairs(20, seed=1))


def test_trees_and_line_find_what_a_feature_says() -> None:
    rng = np.random.default_rng(0)
    rows = rng.random((400, 5))
    same = rows[:, 2] > 0.5
    assert ((grow(rows, same, trees=30).means(rows) > 0.5) == same).mean() > 0.95
    line = fit_line(rows, same)
    assert ((line.log_odds(rows) > 0) == same).mean() > 0.9
    assert int(np.argmax(np.abs(line.weight))) == 2


def test_features_have_one_length_with_and_without_token_vectors() -> None:
    one, other = read("How do I cancel?"), read("怎么取消？")
    known = vocabulary([(one, other)])
    assert len(features(known, one, other, 0.5)) == len(features(known, other, other, 1.0))
    assert tokens("Is it 5pm, 办理？") == ["is", "it", "5", "pm", ",", "办", "理", "？"]
