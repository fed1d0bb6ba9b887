from __future__ import annotations

import json
from typing import Any

import pytest

from ragcache.gateway.asking import Terms, asked_as_text, asked_in_chat
from ragcache.gateway.bodies import ChatBody, PromptBody, read
from ragcache.gateway.credentials import Caller
from ragcache.gateway.faults import Fault
from ragcache.keys import Identity, keys_of, scope_of

CALLER = Caller(tenant="acme", principal="ada", access=frozenset({"hr"}))
TERMS = Terms(models=("fake", "other"))
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def chat(*messages: dict[str, Any], terms: Terms = TERMS, **fields: Any):
    raw = json.dumps({"messages": list(messages), **fields}).encode()
    body, whole = read(raw, ChatBody)
    return asked_in_chat(body, whole, CALLER, terms, {})


def user(text: Any, **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": text, **more}


def test_who_asks_is_the_credentials_holder_whatever_the_body_says():
    request = chat(user("Fee?"), user="globex", tenant="globex").request
    assert (request.tenant, request.principal) == ("acme", "ada")
    assert request.access == {"hr"}
    assert request.sharing == "private"
    assert request.params == {"user": "globex", "tenant": "globex"}


def test_messages_go_out_as_they_came():
    messages = [
        {"role": "developer", "content": "Be brief.", "name": "rules"},
        user([{"type": "text", "text": "Fee?"}, {"type": "image_url", "image_url": {"url": "u"}}]),
        {"role": "assistant", "content": None, "tool_calls": [CALL], "future": 1},
        {"role": "tool", "tool_call_id": "c1", "content": "80"},
        user("And tomorrow?"),
    ]
    request = chat(*messages).request
    assert [m.wire() for m in request.formatted.messages] == messages
    assert request.question == "And tomorrow?"
    assert len(request.history) == 3


def test_without_documents_only_equal_requests_are_served():
    assert chat(user("Fee?")).request.exact_only
    assert not chat(user("Fee?"), ragcache={"documents": ["The fee is 80."]}).request.exact_only


@pytest.mark.parametrize(
    "fields",
    [{"n": 2}, {"logprobs": True}, {"modalities": ["text", "audio"]}, {"audio": {"voice": "x"}}],
)
def test_what_a_stored_answer_cannot_give_is_neither_stored_nor_served(fields):
    request = chat(user("Fee?"), **fields).request
    assert (request.no_cache, request.no_store) == (True, True)


def test_what_a_tool_has_just_said_is_answered_anew():
    turns = [user("Fee?"), {"role": "assistant", "content": "", "tool_calls": [CALL]}]
    request = chat(*turns, {"role": "tool", "tool_call_id": "c1", "content": "80"}).request
    assert (request.no_cache, request.no_store) == (True, True)
    assert not chat(user("Fee?"), tools=[{"type": "function"}]).request.no_store  # the control


def test_only_models_that_are_offered_may_be_asked():
    assert chat(user("Fee?")).model == "fake"
    assert chat(user("Fee?"), model="other").request.model == "other"
    with pytest.raises(Fault) as refused:
        chat(user("Fee?"), model="dear")
    assert refused.value.status == 404


def test_the_operators_system_text_is_for_prompts_that_bring_none():
    terms = Terms(models=("fake",), system="Answer from the documents.")
    roles = [m.role for m in chat(user("Fee?"), terms=terms).request.formatted.messages]
    assert roles == ["system", "user"]
    own = chat({"role": "system", "content": "Mine."}, user("Fee?"), terms=terms)
    assert [m.text() for m in own.request.formatted.messages] == ["Mine.", "Fee?"]


def test_documents_that_stand_nowhere_are_rendered_with_the_turns_before():
    request = chat(
        {"role": "system", "content": "Rules."},
        user("Hello"),
        {"role": "assistant", "content": "Hello!"},
        user("Fee?"),
        ragcache={"documents": [{"text": "The fee is 80.", "source": "a", "access": ["hr"]}]},
    ).request
    assert request.formatted is None
    assert (request.system, request.question) == ("Rules.", "Fee?")
    assert [m.role for m in request.history] == ["user", "assistant"]
    assert request.documents[0].access == {"hr"}


def test_a_bare_prompt_is_one_message_and_token_ids_pass():
    def prompt(value: Any):
        body, whole = read(json.dumps({"prompt": value}).encode(), PromptBody)
        return asked_as_text(body, whole, CALLER, TERMS, {}).request

    assert prompt("Once upon").formatted.messages[0].content == "Once upon"
    ids = prompt([1, 2])
    assert ids.formatted.messages[0].content == ({"type": "prompt", "prompt": [1, 2]},)
    assert ids.no_store


def test_of_a_long_text_the_last_paragraph_is_the_question_and_the_rest_part_of_the_key():
    def asked(context: str):
        request = chat(user(f"{context}\n\nWhat is the fee?")).request
        scope = scope_of(request, Identity(target="t", model="fake"))
        return request.question, keys_of(request, scope)

    one, other = asked("The fee is 80. " * 200), asked("The fee is 90. " * 200)
    assert one[0] == other[0] == "What is the fee?"
    assert one[1].exact != other[1].exact
    assert one[1].normal != other[1].normal
    assert one == asked("The fee is 80. " * 200)


def test_a_long_text_without_paragraphs_is_asked_by_its_end():
    assert len(chat(user("fee " * 100_000)).request.question) <= 1000
