"""What the gates of admission cost those who mean well: paraphrases and benign look-alikes."""

from __future__ import annotations

import json
from pathlib import Path

from ragcache.admission.canonical import beyond_the_question
from ragcache.admission.marks import has_instruction
from ragcache.types import Request


def is_refused(question: str) -> bool:
    asked = Request(tenant="acme", question=question)
    return has_instruction(question) or bool(beyond_the_question(asked))


def pairs_of(path: Path) -> list[tuple[str, str]]:
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    if "cached" in rows[0]:
        return [(row["cached"], row["query"]) for row in rows if row["reuse"]]
    return [(row["a"], row["b"]) for row in rows if row["same"]]


def lost(path: Path) -> float:
    """Return the share of paraphrases that cannot be served, since the first is not stored."""
    pairs = pairs_of(path)
    assert len(pairs) >= 27
    return sum(is_refused(stored) for stored, _ in pairs) / len(pairs)


def test_at_most_five_points_of_paraphrases_are_lost_to_admission(data_dir: Path) -> None:
    for name in (
        "security/gsc_banking_adversarial.jsonl",
        "semantic/answer_pairs_en.jsonl",
        "semantic/duplicate_questions_en.jsonl",
        "semantic/duplicate_questions_zh.jsonl",
    ):
        share = lost(data_dir / name)
        print(f"{name}: {share:.3f} of the paraphrases lost")
        assert share <= 0.05, name


def test_benign_look_alikes_are_admitted_and_injections_are_not(data_dir: Path) -> None:
    lines = (data_dir / "security/admission_injection_questions.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    refused = {
        label: [row["text"] for row in rows if row["label"] == label and is_refused(row["text"])]
        for label in ("benign", "inject")
    }
    assert refused["benign"] == []
    assert len(refused["inject"]) == sum(row["label"] == "inject" for row in rows) == 20
