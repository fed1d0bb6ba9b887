"""Rules over source code: each fires on its fault, at its line, and not on the mended twin."""

from __future__ import annotations

import json

import pytest

from ragcache.errors import ConfigError
from ragcache.layout.lint import RULES, as_json, as_text, lint_source
from ragcache.providers import all_rules

FAULTS = {
    "clock": (
        'system = f"You are a clerk. Now: {datetime.now()} Answer from the documents."',
        'system = "You are a clerk. Answer from the documents."',
    ),
    "uuid": (
        'messages = [{"role": "system", "content": "Session " + str(uuid.uuid4())}]',
        'messages = [{"role": "system", "content": "Session"}]',
    ),
    "random": (
        'system_prompt = "Example: {}".format(random.choice(EXAMPLES))',
        'system_prompt = "Example: {}".format(EXAMPLES[0])',
    ),
    "set_order": (
        'prompt = "Tags: " + ", ".join(set(tags))',
        'prompt = "Tags: " + ", ".join(sorted(set(tags)))',
    ),
    "json_order": (
        'prompt = "Schema: " + json.dumps(schema)',
        'prompt = "Schema: " + json.dumps(schema, sort_keys=True)',
    ),
    "tool_order": (
        "client.create(tools=list({a, b}))",
        "client.create(tools=sorted([a, b], key=name))",
    ),
    "R1": (
        'prompt = "\\n\\n".join(d.page_content for d in docs) + question',
        'prompt = "\\n\\n".join(d.page_content for d in sorted(docs, key=key)) + question',
    ),
    "R2": (
        'context_prompt = "".join(f"{d.score} {d.text}" for d in sorted(docs, key=key))',
        'context_prompt = "".join(f"{d.text}" for d in sorted(docs, key=key))',
    ),
    "R3": (
        'prompt = "".join(f"[{i}] {d.text}" for i, d in enumerate(docs))',
        'prompt = "".join(f"[{d.id}] {d.text}" for d in sorted(docs, key=key))',
    ),
    "R4": (
        'template = "Question: {question}\\nContext: {context}"',
        'template = "Context: {context}\\nQuestion: {question}"',
    ),
    "R5": ("docs = LongContextReorder().transform_documents(docs)", "docs = reordered(docs)"),
    "R7": (
        'part = {"type": "text", "text": f"Now {time.time()}", "cache_control": {}}',
        'part = {"type": "text", "text": "Now", "cache_control": {}}',
    ),
    "R8": (
        'client.chat.completions.create(model="gpt-5.6", messages=m)',
        'c.create(model="gpt-5.6", messages=m, prompt_cache_options={"mode": "explicit"})',
    ),
    "R9": (
        'client.chat.completions.create(model="gpt-5.5", messages=m)',
        'client.chat.completions.create(model="gpt-5.5", messages=m, prompt_cache_key=key)',
    ),
    "R13": (
        'system = f"You serve {tenant_id}. Answer from the documents alone."',
        'system = "Answer from the documents alone."',
    ),
}


def rules_in(code: str) -> set[str]:
    return {finding.rule for finding in lint_source(code, rules=all_rules())}


@pytest.mark.parametrize("rule", sorted(FAULTS))
def test_each_rule_fires_on_its_fault_and_not_on_the_mended_twin(rule):
    fault, mended = FAULTS[rule]
    assert rule in rules_in(fault)
    assert rule not in rules_in(mended)


PROBE = """
import json, uuid
from datetime import datetime

def format_docs(docs):
    parts = []
    for rank, (doc, score) in enumerate(docs):
        parts.append(f"({score:.2f}) {doc.page_content}")
    return "\\n\\n".join(parts)

def answer(client, question, retriever, tools, tags):
    docs = retriever.invoke(question)
    system = f"You are helpful. Today is {datetime.now():%Y-%m-%d}. Session {uuid.uuid4()}."
    system += " Tags: " + ", ".join(set(tags))
    schema = json.dumps(tools)
    user = f"Question: {question}\\n\\nContext:\\n{format_docs(docs)}\\nTools: {schema}"
    return client.create(messages=[
        {"role": "system", "content": system}, {"role": "user", "content": user},
    ])
"""


def test_all_seven_faults_of_a_usual_chain_are_found():
    found = {finding.rule for finding in lint_source(PROBE)}
    assert {"clock", "uuid", "set_order", "json_order", "R1", "R2", "R4"} <= found


def test_what_varies_behind_the_documents_is_no_fault():
    code = """
def ask(docs, question):
    started = time.time()
    text = "\\n".join(d.text for d in sorted(docs, key=lambda d: d.id))
    logger.info(f"at {datetime.now()}: {json.dumps({'a': 1})} {uuid.uuid4()}")
    messages = [{"role": "user", "content": f"{text}\\n\\nNow: {datetime.now()}\\n{question}"}]
    return messages, time.time() - started
"""
    assert rules_in(code) == set()


def test_a_finding_names_file_line_and_column():
    [finding] = lint_source('x = 1\nsystem = f"Now {datetime.now()}, dear reader"', path="a.py")
    assert (finding.path, finding.line) == ("a.py", 2)
    assert str(finding).startswith("a.py:2:17: clock: ")


def test_reports_for_people_and_for_programs_agree():
    findings = lint_source(PROBE, path="probe.py")
    text, data = as_text(findings), json.loads(as_json(findings))
    assert len(data["findings"]) == len(findings)
    for finding, plain in zip(findings, data["findings"], strict=True):
        assert str(finding) in text
        assert plain["rule"] == finding.rule
        assert plain["severity"] == RULES[finding.rule][0]


def test_no_findings_are_said():
    assert as_text(()) == "no findings"


def test_what_is_not_python_is_refused_with_its_line():
    with pytest.raises(ConfigError, match=r"broken\.py:1: not Python"):
        lint_source("def (", path="broken.py")
