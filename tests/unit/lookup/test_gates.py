"""Gates: one difference each, with a control that passes."""

from __future__ import annotations

import pytest

from ragcache.lookup import LookupPolicy, read
from ragcache.lookup.gates import gate_reason

STRICT = LookupPolicy(gates="strict")


def reason(stored: str, asked: str, policy: LookupPolicy = STRICT) -> str:
    return gate_reason(read(stored), read(asked), policy)


@pytest.mark.parametrize(
    ("stored", "asked", "why"),
    [
        ("Is the fee due after 30 days?", "Is the fee due after 90 days?", "number"),
        ("Is the dose 5 mg daily?", "Is the dose 5 g daily?", "number"),
        ("What changed for Orla in March?", "What changed for Orla in April?", "number"),
        ("What are the limits of Kestrel v2.4?", "What are the limits of Kestrel v2.5?", "number"),
        ("Show the status of case WT-44219", "Show the status of case WT-44291", "number"),
        ("Can staff carry over leave?", "Can staff not carry over leave?", "negation"),
        ("How do I enable dark mode?", "How do I disable dark mode?", "antonym"),
        ("Is the deposit refundable?", "Is the deposit non-refundable?", "negation"),
        ("Does the app support Merlin cards?", "Does the app support Orla cards?", "entity"),
        (
            "What is the fee on a checking account?",
            "What is the fee on a savings account?",
            "entity",
        ),
        ("What is the fee per day?", "What is the fee per week?", "entity"),
        ("How many days of leave do I have?", "How many weeks of leave do I have?", "entity"),
        ("When did Tesla move to Prague?", "Why did Tesla move to Prague?", "question_type"),
        ("What is the price of the pass?", "What was the price of the pass?", "tense"),
        ("Move money from savings to checking", "Move money from checking to savings", "slot"),
        ("八上英语练习册答案", "八下英语练习册答案", "antonym"),
        ("语音怎么转换成文字", "文字怎么转换成语音", "order"),
        ("上海到郑州有高铁吗", "郑州到上海有高铁吗", "order"),
        ("喝什么能解渴", "喝什么不解渴", "negation"),
        ("第三期的嘉宾是谁", "第五期的嘉宾是谁", "number"),
    ],
)
def test_a_difference_that_matters_is_vetoed_by_its_gate(stored: str, asked: str, why: str) -> None:
    assert reason(stored, stored) == "", "control: a question passes against itself"
    assert reason(stored, asked) == why
    assert reason(asked, stored) == why, "a gate looks both ways"


@pytest.mark.parametrize(
    ("stored", "asked"),
    [
        ("How much is the travel card?", "What's the price of the travel card?"),
        ("How do I cancel my order?", "Hi, how do I cancel my order please? Thanks"),
        ("Do you sell gift vouchers?", "do you sell gift vouchers??"),
        (
            "How do I change the language in the app settings?",
            "In the app settings, how do I change the language?",
        ),
        ("What is the fee per day?", "What is the daily fee?"),
        ("Who wrote Wuthering Heights?", "Who's the author of Wuthering Heights?"),
        ("怎么取消邮箱绑定？", "请问如何取消邮箱绑定"),
        ("能不能退款？", "可以退款吗"),
        ("睡眠面膜什么牌子好", "什么牌子的睡眠面膜好？"),
    ],
)
def test_the_same_in_other_words_passes_without_vectors(stored: str, asked: str) -> None:
    assert reason(stored, asked) == ""


def test_the_policy_gate_holds_back_actions_and_the_present_only_where_it_is_on() -> None:
    on = LookupPolicy(gates="strict", policy_gate=True)
    assert reason("Close my savings account", "Close my savings account", on) == "policy_action"
    assert reason("What is the rate today?", "What is the rate today?", on) == "policy_time"
    assert reason("What is the rate today?", "What is the rate today?") == ""


def test_text_that_is_not_what_it_looks_like_is_never_matched() -> None:
    plain = "reset my admin password"
    assert reason(plain, "reset my \u0430dmin password") == "instruction"
    assert reason(plain, "reset my \u202enimda\u202c password") == "instruction"
    assert reason(plain, "reset my ad\u00admin password") == "", "a soft hyphen is folded away"


def test_gates_off_serves_by_similarity_alone() -> None:
    assert reason("Is it 5?", "Is it 6?", LookupPolicy(gates="off")) == ""
