"""Dated rules and prices: all of them load, an unknown model gets no guess."""

from __future__ import annotations

from datetime import date

import pytest

from ragcache.errors import ConfigError
from ragcache.providers import all_prices, all_rules, cost_usd, find_price, find_rules, parse
from ragcache.telemetry.savings import prices_of
from ragcache.types import Usage


def test_every_rule_says_where_it_was_read_and_when():
    for entry in (*all_rules(), *all_prices()):
        assert entry.source
        assert date(2026, 1, 1) <= entry.checked
    assert {rules.provider for rules in all_rules()} >= {
        "openai", "anthropic", "bedrock", "deepseek", "gemini", "qwen", "kimi", "mistral", "vllm",
    }  # fmt: skip


def test_names_of_rules_are_unique():
    names = [rules.name for rules in all_rules()]
    assert len(names) == len(set(names))


def test_marked_rules_name_their_field_and_their_fee():
    for rules in all_rules():
        assert rules.marked == bool(rules.mark)
        assert 0 <= rules.read < 1
        assert rules.max_marks in (0, 4)
        lives = [life.seconds or 0 for life in rules.lifetimes]
        assert lives == sorted(lives)


@pytest.mark.parametrize(
    ("provider", "model", "name"),
    [
        ("openai", "gpt-5.6-luna", "openai-gpt-5.6"),
        ("openai", "gpt-5.4-mini", "openai-gpt-5"),
        ("openai", "GPT-4o-2024-08-06", "openai-gpt-4o"),
        ("anthropic", "claude-haiku-4-5-20251001", "anthropic-4096"),
        ("anthropic", "claude-sonnet-4-5", "anthropic-1024"),
        ("bedrock", "eu.anthropic.claude-sonnet-4-5-20250929-v1:0", "bedrock-claude"),
        ("deepseek", "deepseek/deepseek-chat", "deepseek"),
        ("vllm", "anything/at-all", "vllm"),
    ],
)
def test_a_model_is_found_by_its_name(provider, model, name):
    found = find_rules(provider, model)
    assert found is not None
    assert found.name == name


@pytest.mark.parametrize(
    ("provider", "model"),
    [("openai", "gpt-9"), ("openai", "gpt-5.7"), ("nobody", "gpt-4o"), ("anthropic", "claude-x")],
)
def test_an_unknown_model_gets_no_guess(provider, model):
    assert find_rules(provider, model) is None
    assert find_price(provider, model) is None


def test_tokens_read_and_written_are_billed_at_their_own_price():
    price = find_price("anthropic", "claude-sonnet-4-5")
    usage = Usage(
        input_tokens=1_000_000,
        cached_tokens=400_000,
        cache_write_tokens=300_000,
        cache_write_1h_tokens=100_000,
        output_tokens=1_000_000,
    )
    expected = 0.3 * 3.0 + 0.4 * 0.3 + 0.2 * 3.75 + 0.1 * 6.0 + 15.0
    assert cost_usd(usage, price) == pytest.approx(expected)
    assert cost_usd(Usage(), price) is None


GOOD = """
provider = "x"
[[rules]]
name = "x"
models = ["m"]
match = "prefix"
read = 0.1
lifetimes = [{}]
source = "s"
checked = 2026-11-29
"""


def test_a_file_is_read_as_it_is_written():
    rules, prices = parse(GOOD)
    assert rules[0].fits("M")
    assert prices == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("provider = ", "not valid TOML"),
        ("x = 1", "'provider' is missing"),
        (GOOD.replace('source = "s"', ""), "'source' is missing"),
        (GOOD.replace("2026-11-29", '"today"'), "must be a date"),
        (GOOD + "colour = 1", "unknown field 'colour'"),
        (GOOD.replace('models = ["m"]', "models = []"), "'models' is missing"),
        ('provider = "x"\n[[prices]]\nmodels = ["m"]\ninput = 1.0', "is missing"),
    ],
)
def test_a_file_with_a_fault_is_refused_by_name(text, message):
    with pytest.raises(ConfigError, match=message):
        parse(text, name="x.toml")


OWN_PRICES = """
prices_source = "our contract"
prices_checked = 2026-11-29
[[prices]]
provider = "openai"
models = ["gpt-4o"]
input = 1.0
output = 2.0
[[prices]]
provider = "vllm"
models = ["qwen*"]
input = 0.05
output = 0.2
"""


def test_a_file_of_the_operators_own_stands_in_place_of_the_shipped_prices(tmp_path):
    file = tmp_path / "prices.toml"
    file.write_text(OWN_PRICES)
    price = prices_of(file=file)
    assert price("openai", "gpt-4o").input == 1.0
    assert price("vllm", "qwen3-8b").output == 0.2
    assert price("anthropic", "claude-sonnet-4-5") is None
    assert prices_of()("anthropic", "claude-sonnet-4-5").input == 3.0
    assert prices_of({"gpt-4o": {"input": 7, "output": 8}}, file=file)("", "gpt-4o").input == 7.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (OWN_PRICES.replace('provider = "vllm"', ""), "'provider' is missing"),
        (
            OWN_PRICES.replace("input = 0.05", 'input = "cheap"'),
            "'input' of 'qwen\\*' is no number",
        ),
    ],
)
def test_a_price_file_with_a_fault_is_refused_by_name(tmp_path, text, message):
    file = tmp_path / "prices.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=message):
        prices_of(file=file)
    with pytest.raises(ConfigError, match=r"absent\.toml cannot be read"):
        prices_of(file=tmp_path / "absent.toml")
