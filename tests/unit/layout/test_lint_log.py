"""Rules over recorded requests: each fires on its fault, and not on the mended twin."""

from __future__ import annotations

import json

import pytest

from ragcache.errors import ConfigError
from ragcache.layout.lint import LogSettings, diff_records, lint_log, read_records
from ragcache.layout.lint.overlap import common
from ragcache.providers import find_rules

A = "The harbour authority opens the northern gate at six and closes it after the last ferry."
B = "Demurrage is charged from the fifth day on, at eighty per container and day, without limit."
C = "Pilots are ordered by radio on channel twelve, two hours before arrival at the outer buoy."
SYSTEM = "You are a freight clerk. Answer from the documents and cite them by their label, please."


def rules_of(model: str):
    """The provider's rules by model alone, as a log gives it."""
    found = (find_rules(p, model) for p in ("openai", "anthropic"))
    return next((rules for rules in found if rules is not None), None)


SETTINGS = LogSettings(rules=rules_of)


def request(user, *, system=SYSTEM, question="What is charged on day five?", **more):
    documents = more.pop("documents", None)
    outer = {k: more.pop(k) for k in ("tenant", "time") if k in more}
    body = {
        "model": more.pop("model", "local-model"),
        "messages": [{"role": "system", "content": system}, {"role": "user", "content": user}],
        **more,
    }
    row = {"request": body, "question": question, **outer}
    if documents is not None:
        row["documents"] = documents
    return row


def docs(*texts, ids=None):
    return [{"id": (ids or "abc")[at], "text": text} for at, text in enumerate(texts)]


def found(*rows, settings=SETTINGS):
    log = "\n".join(json.dumps(row) for row in rows)
    return {finding.rule for finding in lint_log(read_records(log, path="log.jsonl"), settings)}


def plain(*texts, question="What is charged on day five?"):
    return "\n\n".join([*texts, question])


def test_a_clean_log_has_no_findings():
    rows = [request(plain(A, B), documents=docs(A, B)) for _ in range(3)]
    assert found(*rows) == set()


@pytest.mark.parametrize(
    ("rule", "first", "second"),
    [
        ("clock", "Now: 2031-04-02T09:14:07Z", "Now: 2031-04-02T09:15:08Z"),
        (
            "uuid",
            "Session 1b4e28ba-2fa1-11d2-883f-0016d3cca427",
            "Session 6fa459ea-ee8a-3ca4-894e-db77e160355e",
        ),
        ("json_order", '{"a": 1, "b": 2} is the schema', '{"b": 2, "a": 1} is the schema'),
        ("whitespace", "line one\nline two", "line one\r\nline two"),
    ],
)
def test_what_ends_the_common_prefix_is_named(rule, first, second):
    rows = [
        request(plain(A, B), system=f"{SYSTEM}\n{value}", documents=docs(A, B))
        for value in (first, second)
    ]
    assert rule in found(*rows)
    mended = [request(plain(A, B), documents=docs(A, B)) for _ in range(2)]
    assert rule not in found(*mended)


def test_the_same_tools_in_another_order():
    one = {"type": "function", "function": {"name": "a"}}
    two = {"type": "function", "function": {"name": "b"}}
    rows = [request(plain(A), tools=tools) for tools in ([one, two], [two, one])]
    assert "tool_order" in found(*rows)


def test_R1_tells_how_much_reuse_the_order_lost():
    rows = [
        request(plain(*texts), documents=docs(*texts, ids=ids))
        for texts, ids in (((A, B, C), "abc"), ((B, A, C), "bac"), ((C, A, B), "cab"))
    ]
    log = "\n".join(json.dumps(row) for row in rows)
    findings = lint_log(read_records(log), SETTINGS)
    [finding] = [f for f in findings if f.rule == "R1"]
    assert "0.0% of" in finding.detail
    assert "possible over 3 requests" in finding.detail


def test_R1_finds_documents_without_being_told_them():
    rows = [request(plain(*texts)) for texts in ((A, B, C), (B, A), (C, A, B), ("x" * 80, A, C))]
    assert "R1" in found(*rows)


def test_R2_score_in_a_block():
    rows = [request(plain(f"(score: 0.8{n})\n{A}", B), documents=docs(A, B)) for n in (1, 2)]
    assert "R2" in found(*rows)


def test_R3_labels_by_position():
    assert "R3" in found(request(plain(f"[1] {A}", f"[2] {B}"), documents=docs(A, B)))
    assert "R3" not in found(request(plain(f"[83] {A}", f"[57] {B}"), documents=docs(A, B)))


def test_R4_question_before_the_documents():
    asked = "What is charged on day five?"
    assert "R4" in found(request(f"{asked}\n\n{A}\n\n{B}", documents=docs(A, B)))
    assert "R4" not in found(request(plain(A, B), documents=docs(A, B)))


def test_R6_and_R15_tell_another_spelling_from_another_text():
    same = [request(plain(A), documents=docs(A)), request(plain(A), documents=docs(f"**{A}**"))]
    assert found(*same) & {"R6", "R15"} == {"R6"}
    other = [request(plain(A), documents=docs(A)), request(plain(B), documents=docs(B))]
    assert found(*other) & {"R6", "R15"} == {"R15"}


def marked(text):
    return {"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}


def test_R7_breakpoint_behind_a_clock():
    def row(now):
        return request([marked(f"{A}\nNow: 2031-04-02 {now}"), {"type": "text", "text": "Q?"}])

    assert "R7" in found(row("09:14:07"), row("09:15:08"))
    assert "R7" not in found(row("09:14:07"), row("09:14:07"))


def test_R8_implicit_breakpoint_and_R9_missing_key():
    assert {"R8", "R9"} <= found(request(plain(A), model="gpt-5.6"))
    mended = request(
        plain(A),
        model="gpt-5.6",
        prompt_cache_key="k",
        extra_body={"prompt_cache_options": {"mode": "explicit"}},
    )
    assert not {"R8", "R9"} & found(mended)


def test_R9_too_many_requests_on_one_key():
    def rows(seconds):
        return [
            request(plain(A), model="gpt-5.5", prompt_cache_key="k", time=at * seconds)
            for at in range(20)
        ]

    assert "R9" in found(*rows(1))
    assert "R9" not in found(*rows(30))


def test_R10_common_prefix_below_the_minimum():
    rows = [request(plain(A, question=q), model="gpt-4o", prompt_cache_key="k") for q in "xy"]
    assert "R10" in found(*rows)
    long = [
        request(plain(*[A] * 60, question=q), model="gpt-4o", prompt_cache_key="k") for q in "xy"
    ]
    assert "R10" not in found(*long)


def test_R11_more_blocks_than_are_looked_back():
    parts = [{"type": "text", "text": f"part {n}"} for n in range(25)]
    row = request([*parts, marked("end")], model="claude-sonnet-4-5")
    assert "R11" in found(row)
    parts[10] = marked("middle")
    assert "R11" not in found(request([*parts, marked("end")], model="claude-sonnet-4-5"))


def test_R12_ranking_hint_before_the_documents():
    hint = "Read in this importance ranking: 2 > 1 > 3"
    assert "R12" in found(request(plain(hint, A, B), documents=docs(A, B)))
    assert "R12" not in found(request(plain(A, B, hint), documents=docs(A, B)))


def test_R13_tenant_or_salt_in_the_prompt():
    row = request(plain(A), system=f"{SYSTEM} You serve acme.", tenant="acme")
    assert "R13" in found(row)
    assert "R13" in found(request(plain(A, "s3cr3t-salt"), cache_salt="s3cr3t-salt"))
    assert "R13" not in found(request(plain(A), tenant="acme"))


def test_R14_document_shorter_than_a_block():
    settings = LogSettings(rules=rules_of, block_size=64)
    assert "R14" in found(request(plain(A), documents=docs(A)), settings=settings)
    assert "R14" not in found(request(plain(A), documents=docs(A)))


def test_a_difference_shows_a_caret_and_never_a_whole_value():
    secret = "sk-live-0123456789abcdef0123456789"
    one = request("hello", system=f"key {secret} Now: 2031-04-02T09:14:07Z")
    two = request("hello", system=f"key {secret} Now: 2031-04-02T09:15:08Z")
    before, after = (read_records(json.dumps(row))[0] for row in (one, two))
    difference = diff_records(before, after)
    assert difference is not None
    assert (difference.part, difference.cause) == ("system message", "clock")
    system = one["request"]["messages"][0]["content"]
    assert difference.offset == system.index("09:14") + 4
    text = str(difference)
    assert secret not in text
    lines = text.splitlines()
    assert lines[1][4 + difference.caret] != lines[2][4 + difference.caret]
    assert lines[3].index("^") == 4 + difference.caret


def test_equal_requests_have_no_difference():
    record = read_records(json.dumps(request(plain(A))))[0]
    assert diff_records(record, record) is None


def test_what_is_no_request_is_refused_with_its_line():
    with pytest.raises(ConfigError, match="line 2"):
        read_records('{"messages": []}\nnonsense\n', path="x.jsonl")
    with pytest.raises(ConfigError, match="no messages"):
        read_records('{"hello": 1}')


# --- overlapping chunks --------------------------------------------------------------------------


def test_overlapping_documents_are_reported_and_neighbours_are_not():
    shared = "The gate closes after the last ferry of the evening has left the northern berth."
    first, second = f"{A} {shared}", f"{shared} {B}"
    assert "overlap" in found(request(plain(first, second), documents=docs(first, second)))
    assert "overlap" not in found(request(plain(A, B), documents=docs(A, B)))


@pytest.mark.parametrize(
    ("first", "second", "shared"),
    [
        (f"x {A}", f"{A} y", A),
        (f"x {A} y", A, A),
        (A, f"x {A} y", ""),  # told for the other one
        (f"{A[:41]} {A}", f"{A} y", A),
        (f"x {A[:39]}", f"{A[:39]} y", ""),
        (A, B, ""),
        ("", "", ""),
    ],
)
def test_an_overlap_is_the_end_of_one_that_the_other_begins_with(first, second, shared):
    assert common(first, second) == shared
