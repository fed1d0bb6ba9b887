"""Messages are read without what does not shape an answer, and changed only in copies."""

from __future__ import annotations

from llama_index.core.base.llms.types import (
    CacheControl,
    CachePoint,
    ChatMessage,
    ImageBlock,
    MessageRole,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)

from llama_index_ragcache.messages import (
    arguments_of,
    last_user,
    message_of,
    text_at,
    turns,
    with_blocks,
)


def test_plain_text_stays_plain_text() -> None:
    message = message_of(ChatMessage(role=MessageRole.USER, content="list the ports\n"))
    assert (message.role, message.content, message.extra) == ("user", "list the ports\n", {})


def test_several_blocks_become_parts() -> None:
    message = message_of(
        ChatMessage(
            role=MessageRole.USER,
            blocks=[
                TextBlock(text="What is this?"),
                ImageBlock(image=b"\x89PNG\r\n\x1a\n", image_mimetype="image/png"),
                ImageBlock(url="https://example.org/a.png"),
            ],
        )
    )
    kinds = [part["type"] for part in message.content]
    assert kinds == ["text", "image_url", "image_url"]
    assert message.content[1]["image_url"]["url"].startswith("data:image/png;base64,iVBOR")
    assert message.content[2]["image_url"]["url"] == "https://example.org/a.png"


def test_tool_calls_are_equal_whatever_the_order_of_their_arguments() -> None:
    def called(arguments: object) -> ChatMessage:
        block = ToolCallBlock(tool_call_id="c1", tool_name="quote", tool_kwargs=arguments)
        return ChatMessage(role=MessageRole.ASSISTANT, blocks=[block])

    one = message_of(called({"port": "Riga", "days": 3}))
    two = message_of(called('{"days": 3, "port": "Riga"}'))
    assert one == two
    assert one.content == ""
    assert arguments_of(one.tool_calls[0]) == {"port": "Riga", "days": 3}


def test_old_tool_calls_are_read_as_new_ones() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "quote", "arguments": '{"a": 1}'}}
    old = ChatMessage(
        role=MessageRole.ASSISTANT, content="", additional_kwargs={"tool_calls": [call]}
    )
    block = ToolCallBlock(tool_call_id="c1", tool_name="quote", tool_kwargs={"a": 1})
    new = ChatMessage(role=MessageRole.ASSISTANT, blocks=[TextBlock(text=""), block])
    assert message_of(old).tool_calls == message_of(new).tool_calls


def test_arguments_that_are_no_json_are_kept_and_read_as_none() -> None:
    block = ToolCallBlock(tool_call_id="c", tool_name="t", tool_kwargs="port=Riga")
    (call,) = message_of(ChatMessage(role=MessageRole.ASSISTANT, blocks=[block])).tool_calls
    assert call["function"]["arguments"] == "port=Riga"
    assert arguments_of(call) == {}


def test_a_tool_result_names_its_call() -> None:
    message = ChatMessage(
        role=MessageRole.TOOL, content="80", additional_kwargs={"tool_call_id": "c1", "name": "q"}
    )
    read = message_of(message)
    assert (read.role, read.tool_call_id, read.name) == ("tool", "c1", "q")


def test_new_blocks_go_into_a_copy() -> None:
    message = ChatMessage(role=MessageRole.USER, content="old")
    assert with_blocks(message, None, [TextBlock(text="new")]).content == "new"
    assert with_blocks(message, None, [TextBlock(text="old")]) is message
    assert message.content == "old"
    thought = ChatMessage(
        role=MessageRole.USER,
        blocks=[
            ThinkingBlock(content="hm"),
            CachePoint(cache_control=CacheControl(type="ephemeral")),
            TextBlock(text="old"),
            TextBlock(text="end"),
        ],
    )
    changed = with_blocks(thought, 1, [TextBlock(text="n"), TextBlock(text="ew")])
    assert [getattr(b, "text", None) for b in changed.blocks] == [None, None, "n", "ew", "end"]
    assert text_at(thought, 1) == "old"
    assert [p["type"] for p in message_of(thought).content] == ["thinking", "text", "text"]


def test_turns_are_what_stands_before_the_newest_question() -> None:
    messages = [
        ChatMessage(role=MessageRole.SYSTEM, content="s"),
        ChatMessage(role=MessageRole.USER, content="q1"),
        ChatMessage(role=MessageRole.ASSISTANT, content="a1"),
        ChatMessage(role=MessageRole.USER, content="q2"),
        ChatMessage(role=MessageRole.TOOL, content="t"),
    ]
    assert last_user(messages) == 3
    assert [m.content for m in turns(messages)] == ["q1", "a1"]
    assert turns(messages[:1]) == []
    assert last_user(messages[:1]) is None
