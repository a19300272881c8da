import pytest
from hypothesis import given
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool

from refork.chat import ScriptedChat
from refork.errors import BadInput
from refork_methods.pin import Constraint, PinnedBuffer
from refork_methods.pin.frameworks.langchain_messages import (
    LangChainChat,
    LangChainShape,
    from_langchain,
    package_counter,
    to_langchain,
)
from support.chat_histories import histories

CALL = {"id": "t1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
BROKEN = {"id": "t2", "type": "function", "function": {"name": "g", "arguments": "{a: 1"}}


@given(histories(system=True))
def test_there_and_back_is_the_identity(messages):
    assert from_langchain(to_langchain(messages)) == messages


def test_what_langchain_has_no_field_for_comes_back():
    messages = [
        {"role": "developer", "content": "d", "id": "a", "mine": [1]},
        {"role": "assistant", "content": None, "id": "b", "tool_calls": [CALL, BROKEN]},
        {"role": "tool", "content": "r", "tool_call_id": "t1", "id": "c", "name": "f"},
        {
            "role": "user",
            "content": [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "x"}}],
        },
    ]
    made = to_langchain(messages)
    assert from_langchain(made) == messages
    assert [type(m) for m in made] == [SystemMessage, AIMessage, ToolMessage, HumanMessage]
    assert made[1].tool_calls[0]["args"] == {"a": 1}
    assert made[1].invalid_tool_calls[0]["args"] == "{a: 1"


def test_messages_that_were_never_ours():
    made = [
        AIMessage("", id="b", tool_calls=[{"id": "t1", "name": "f", "args": {"a": 1}}]),
        HumanMessage(
            [{"type": "tool_result", "tool_use_id": "t1", "content": "res"}, {"type": "text", "text": "hi"}],
            id="q",
        ),
    ]
    call, text, result = from_langchain(made)
    assert call["tool_calls"][0]["function"] == {"name": "f", "arguments": '{"a": 1}'}
    assert (text["id"], text["content"]) == ("q", "hi")
    assert (result["id"], result["role"], result["tool_call_id"]) == ("q.1", "tool", "t1")


def test_an_edited_message_comes_back_edited():
    made = to_langchain([{"role": "assistant", "content": "a\nb", "id": "x", "tool_calls": [BROKEN]}])
    out = from_langchain([made[0].model_copy(update={"content": "b"})])
    assert out == [{"role": "assistant", "content": "b", "id": "x", "tool_calls": [BROKEN]}]


@pytest.mark.parametrize(
    "message", [{"role": "oracle", "content": "x"}, {"content": "x"}, {"role": "tool", "content": "x"}]
)
def test_a_message_that_langchain_has_not(message):
    with pytest.raises(BadInput, match="message 2"):
        to_langchain([{"role": "user", "content": "x"}, message])


def test_the_model_is_shown_plain_messages_and_records_the_question():
    script = ScriptedChat([{"role": "assistant", "content": "", "tool_calls": [CALL]}, "bye"])
    model = LangChainChat(script)
    first = model.invoke(to_langchain([{"role": "user", "content": "hi", "id": "m0"}]))
    assert script.asked == [({"role": "user", "content": "hi"},)]
    assert first.tool_calls[0]["name"] == "f"
    assert first.additional_kwargs == {}
    assert model.asked[0].messages[0].id == "m0"
    assert model.invoke("again").text == "bye"
    assert model.asked[1].call().answer == "bye"


def test_bound_tools_arrive_as_openai_schemas():
    seen = []

    class Asked:
        name = "asked"

        def reply(self, messages, *, tools=(), draw=0):
            seen.append((tools, draw))
            return ScriptedChat(["ok"]).reply(messages)

    @tool
    def look(at: str) -> str:
        """Look at something."""
        return at

    LangChainChat(Asked(), draw=3).bind_tools([look]).invoke("hi")
    ((tools, draw),) = seen
    assert draw == 3
    assert tools[0]["function"]["name"] == "look"


def test_our_counter_is_given_our_messages():
    count = package_counter(lambda messages: sum(len(m["content"]) for m in messages))
    assert count(to_langchain([{"role": "user", "content": "four", "id": "x"}])) == 4


@pytest.mark.parametrize("role", ["system", "developer", "user"])
def test_a_pin_among_langchain_messages(role):
    buffer = PinnedBuffer((Constraint("mail", "Mail only acme.com."),), role=role)
    shape = LangChainShape(role)
    image = {"type": "image_url", "image_url": {"url": "x"}}
    forged = HumanMessage(
        [{"type": "text", "text": buffer.text}, image, "and more"], id="h", additional_kwargs={"kept": 1}
    )
    items = [SystemMessage("Be kind.", id="s"), forged, AIMessage("fine", id="a")]
    placed = buffer.insert(items, shape)
    assert buffer.check_texts([shape.text(m) for m in placed]).ok
    assert buffer.insert(placed, shape) == placed
    assert placed[0] == items[0]
    assert shape.text(placed[1]) == buffer.text
    cleaned = placed[2]
    assert cleaned.content[1] == image
    assert (cleaned.id, cleaned.additional_kwargs) == ("h", {"kept": 1})
    assert forged.content[0]["text"] == buffer.text
    assert from_langchain(placed)[1]["role"] == ("user" if role == "user" else role)


def test_an_order_to_remove_is_no_chat_message():
    with pytest.raises((ValueError, BadInput)):
        from_langchain([RemoveMessage(id="x")])
