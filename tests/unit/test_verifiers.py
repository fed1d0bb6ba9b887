"""Second opinions: a cross-encoder trained here, and what was fitted to labelled pairs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ragcache.bench.questions import Asked, candidate_of, entry_of
from ragcache.bench.rewording import paraphrases, traps
from ragcache.errors import ConfigError, VerifierError
from ragcache.factory import verifier_from
from ragcache.lookup import read
from ragcache.lookup.learned import fit
from ragcache.settings import Settings
from ragcache.types import Candidate, Embedding
from ragcache.verifiers import CrossEncoderVerifier, FittedVerifier

PRODUCTS = ("card", "loan", "ticket", "pass")


def candidate(question: str, *, reading: bool = True) -> Candidate:
    asked = Asked(text=question, embedding=embedding(question), reading=read(question))
    entry = entry_of(asked, "an answer", name=question)
    return candidate_of(entry if reading else replace(entry, reading={}), 0.9)


def embedding(text: str) -> Embedding:
    return Embedding(text=text, vector=np.ones(4, dtype=np.float32) / 2)


def sentences(product: str) -> tuple[str, str, str]:
    return (
        f"how much is the {product}",
        f"what does the {product} cost",
        f"who can cancel the {product}",
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cross-encoder of one small layer, trained to tell cancelling from asking the price."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    torch.manual_seed(0)
    torch.set_num_threads(1)
    texts = [text for product in PRODUCTS for text in sentences(product)]
    words = sorted({word for text in texts for word in text.split()})
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = BertTokenizerFast(vocab={w: at for at, w in enumerate([*special, *words])})
    model = BertForSequenceClassification(
        BertConfig(
            vocab_size=len(tokenizer),
            hidden_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=64,
            max_position_embeddings=64,
            num_labels=1,
        )
    ).eval()
    pairs = [(sentences(p)[0], sentences(p)[at], at == 1) for p in PRODUCTS for at in (1, 2)]
    batch = tokenizer(
        [p[0] for p in pairs], [p[1] for p in pairs], return_tensors="pt", padding=True
    )
    same = torch.tensor([float(p[2]) for p in pairs])
    steps = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(60):
        scores = model(**batch).logits[:, 0]
        steps.zero_grad()
        torch.nn.functional.binary_cross_entropy_with_logits(scores, same).backward()
        steps.step()
    path = tmp_path_factory.mktemp("cross-encoder")
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


async def test_a_cross_encoder_by_folder_tells_the_same_from_another(folder: Path) -> None:
    verifier = CrossEncoderVerifier(str(folder))
    await verifier.open()
    price, cost, cancelling = sentences("loan")
    (same,) = await verifier.opinions(cost, embedding(cost), [candidate(price)])
    (other,) = await verifier.opinions(cancelling, embedding(cancelling), [candidate(price)])
    await verifier.close()
    assert 0.9 <= same <= 1.0
    assert 0.0 <= other <= 0.1


async def test_what_is_no_cross_encoder_is_refused() -> None:
    with pytest.raises(ConfigError, match="no trained head"):
        await CrossEncoderVerifier("all-MiniLM-L6-v2").open()
    with pytest.raises(ConfigError, match="cannot be loaded"):
        await CrossEncoderVerifier("/nowhere/at/all").open()


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = [*traps(80, seed=3), *paraphrases(80, seed=3)]
    pairs = [(read(row.stored), read(row.asked), 0.9) for row in rows]
    same = np.array([row.same for row in rows], dtype=bool)
    path = tmp_path_factory.mktemp("fitted") / "verifier.json"
    ranker = fit(pairs, same, embedder="e:1", trees=20)
    path.write_text(json.dumps(ranker.as_json()), encoding="utf-8")
    return path


async def test_a_fitted_one_works_from_its_file(fitted: Path) -> None:
    verifier = FittedVerifier(fitted, embedder="e:1")
    await verifier.open()
    asked = "How can I update the address on my meal kit?"
    stored = [
        candidate("How do I change the address on my meal kit?"),
        candidate("How do I cancel the data plan?"),
    ]
    same, other = await verifier.opinions(asked, embedding(asked), stored)
    assert same > 0.7 > 0.5 > other
    with pytest.raises(VerifierError, match="without a reading"):
        await verifier.opinions(asked, embedding(asked), [candidate("x", reading=False)])
    await verifier.close()


def test_a_fitted_one_of_another_embedder_or_kind_is_refused(fitted: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"fitted to the embedder 'e:1', not to 'e:2'"):
        FittedVerifier(fitted, embedder="e:2")
    with pytest.raises(ConfigError, match="cannot be read"):
        FittedVerifier(tmp_path / "absent.json", embedder="e:1")
    for text in ("{}", "[]", "no json"):
        (tmp_path / "odd.json").write_text(text)
        with pytest.raises(ConfigError, match="was not made by"):
            FittedVerifier(tmp_path / "odd.json", embedder="e:1")


def test_settings_name_the_verifier(fitted: Path, folder: Path) -> None:
    def named(model: str) -> Any:
        return verifier_from(Settings.load(verifier={"model": model}), None)

    assert named("") is None
    assert named(str(folder)).id == f"cross:{folder}:"
    with pytest.raises(ConfigError, match="fitted to the embedder"):
        named(f"fitted:{fitted}")
    with pytest.raises(ConfigError):
        Settings.load(verifier={"threshold": 1.5})
