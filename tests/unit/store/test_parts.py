"""The pure parts of the store: vectors, named SQL, migrations, notices, selections."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ragcache.errors import MigrationError, VectorError
from ragcache.store.maintenance import Crowd
from ragcache.store.migrations import Migration, migrations, pending
from ragcache.store.notices import notice, parsed
from ragcache.store.purging import Purged, Selection
from ragcache.store.queries import queries
from ragcache.store.vectors import HALFVEC, VECTOR, checked, column_for
from ragcache.store.watching import SHAPES, shape_of


@given(arrays(np.float32, st.integers(1, 9), elements=st.floats(width=32)))
def test_whatever_passes_can_be_compared(vector):
    try:
        sound = checked(vector, None)
    except VectorError:
        assert not np.isfinite(vector).all() or not vector.any()
    else:
        assert np.linalg.norm(sound) == pytest.approx(1.0, abs=2e-3)


@pytest.mark.parametrize(
    ("vector", "said"),
    [
        (np.zeros(3), "zero"),
        (np.array([1.0, np.nan, 0.0]), "NaN"),
        (np.array([1.0, np.inf, 0.0]), "NaN or infinity"),
        (np.ones(4), "4 dimensions.*ragcache reembed"),
        (np.ones((2, 3)), "one axis"),
        (np.ones(0), "one axis"),
    ],
)
def test_unsound_vectors_say_what_is_wrong(vector, said):
    with pytest.raises(VectorError, match=said):
        checked(vector, 3)


def test_long_vectors_go_to_half_precision_and_longer_ones_nowhere():
    assert column_for(384, halfvec=False) == VECTOR
    assert column_for(384, halfvec=True) == HALFVEC
    assert column_for(1536, halfvec=False) == VECTOR
    assert column_for(3072, halfvec=False) == HALFVEC
    with pytest.raises(VectorError, match="smaller output size"):
        column_for(8192, halfvec=False)


@pytest.mark.parametrize(
    "name", ["check", "invalidation", "lookup", "ops", "session", "storing", "watching"]
)
def test_every_file_of_sql_has_named_statements(name):
    statements = queries(name)
    assert statements
    assert all(text.strip() for text in statements.values())
    if name != "watching":  # bodies of functions have several
        code = "\n".join(re.sub("--.*", "", text) for text in statements.values())
        assert ";" not in code


def test_migrations_are_numbered_without_gaps():
    assert [step.number for step in migrations()] == list(range(1, len(migrations()) + 1))


def test_what_is_pending_is_what_is_known_and_not_applied():
    one = Migration(number=1, name="one", text="SELECT 1")
    two = Migration(number=2, name="two", text="SELECT 2")
    assert pending([one, two], {}) == (one, two)
    assert pending([one, two], {1: one.checksum}) == (two,)
    assert pending([one, two], {1: one.checksum, 2: two.checksum, 3: "later"}) == ()
    with pytest.raises(MigrationError, match="0002_two"):
        pending([one, two], {1: one.checksum, 2: "changed"})


def test_a_notice_names_no_tenant_and_is_known_by_it():
    payload = notice("change", "acme")
    assert "acme" not in payload
    heard = parsed(payload)
    assert heard.kind == "change"
    assert heard.concerns("acme")
    assert not heard.concerns("acme2")


@pytest.mark.parametrize("payload", ["", "x", "{}", "[]", '{"kind": 1}', "null"])
def test_payloads_of_others_are_no_notices(payload):
    assert parsed(payload) is None


def test_a_selection_describes_itself_without_naming_a_person():
    selection = Selection(
        tenant="t", writer="ann", model="m", older_than=datetime(2031, 1, 1, tzinfo=UTC)
    )
    assert "ann" not in str(selection)
    assert "model=m" in str(selection)
    assert str(Selection(tenant="t")) == "tenant"
    assert Purged(entries={"a": 2, "b": 3}).total == 5


def test_an_index_has_one_name_for_each_crowd():
    def crowd(tenant, partition, column=VECTOR):
        return Crowd(
            tenant=tenant,
            partition=partition,
            embedder="e",
            dimensions=3,
            column=column,
            vectors=1,
        )

    names = {
        crowd("a", "bc").index,
        crowd("ab", "c").index,
        crowd("a", "bc", HALFVEC).index,
    }
    assert len(names) == 3
    assert all(len(name) < 63 for name in names)
    assert crowd("a", "bc").index == crowd("a", "bc").index


def test_known_tables_are_recognised_by_their_columns():
    assert shape_of(["id", "collection_id", "embedding", "document", "cmetadata"]) == SHAPES[0]
    assert shape_of(["langchain_id", "content", "embedding"]) == SHAPES[1]
    assert shape_of(["id", "text", "metadata_", "node_id", "embedding"]) == SHAPES[2]
    assert shape_of(["key", "body"]) is None
