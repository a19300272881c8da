"""The form of tool calls, read off chat templates as models have them, and the grammars made of it."""

import json

import pytest

from refork.errors import BadInput, CannotDo
from refork.policies.call_form import CallForm, arguments_schema, call_form, turn_grammar
from refork.policies.chat import Codec
from refork.sampling.guide import check_grammar
from support.models import make_tokenizer

TOOL = {"name": 'a"b', "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}}}

#: A template of tagged calls on lines of their own, one of bare JSON that allows one call, one with thoughts.
TAGGED = """{% if tools %}{{ tools | tojson }}<|im_end|>{% endif %}{% for m in messages %}
{%- if m.role == "assistant" %}<|im_start|>assistant{% if m.content %}{{ '\\n' + m.content }}{% endif %}
{%- for c in m.tool_calls or [] %}{{ '\\n<tool_call>\\n{"name": "' + c.function.name + '", "arguments": ' }}
{{- c.function.arguments | tojson }}{{ '}\\n</tool_call>' }}{% endfor %}{{ '<|im_end|>\\n' }}
{%- else %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endif %}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
SINGLE = """{{ tools | tojson }}{% for m in messages %}{% if m.tool_calls %}
{%- if m.tool_calls | length != 1 %}{{ raise_exception("one call") }}{% endif %}
{{- '[assistant]{"name": "' + m.tool_calls[0].function.name + '", "parameters": ' }}
{{- m.tool_calls[0].function.arguments | tojson }}{{ '}[end]' }}
{%- else %}{{ '[' + m.role + ']' + m.content + '[end]' }}{% endif %}{% endfor %}
{%- if add_generation_prompt %}[assistant]{% endif %}"""
THINKING = TAGGED.replace(
    "{% if m.content %}{{ '\\n' + m.content }}{% endif %}",
    "{{ '\\n<think>\\n\\n</think>\\n\\n' + m.content }}",
)


def codec(template):
    tokenizer = make_tokenizer()
    tokenizer.chat_template = template
    return Codec(tokenizer)


@pytest.mark.parametrize(
    ("template", "form"),
    [
        (TAGGED, CallForm('<tool_call>\n{"name": "', '", "arguments": ', "}\n</tool_call>", "\n")),
        (SINGLE, CallForm('{"name": "', '", "parameters": ', "}", None)),
        (THINKING, CallForm('\n<tool_call>\n{"name": "', '", "arguments": ', "}\n</tool_call>", "")),
    ],
)
def test_the_form_is_what_the_template_writes(template, form):
    assert call_form(codec(template)) == form
    calls = [("x", {"a": 1, "b": ["é"]}), ("xy", {})]
    text = (form.joint or "").join(form.write(name, given) for name, given in calls)
    read = form.read(text, ["x", "xy"])
    assert [(name, json.loads(given)) for name, given in read] == (
        calls if form.joint is not None else calls[:1]
    )
    assert form.read(text, ["other"]) == []
    assert form.read(text[:-1], ["x", "xy"]) == read[:1] or form.joint is None
    assert form.read(text[:5], ["x"]) == []


@pytest.mark.parametrize(
    ("template", "says"),
    [
        (None, "no chat template"),
        ("{% for m in messages %}{{ m.content }}{% endfor %}", "shows no tools"),
        (
            "{{ tools }}{% for m in messages %}{{ m.content }}{{ m.tool_calls }}{% endfor %}",
            "no grammar here",
        ),
        (TAGGED.replace("<tool_call>", "<end>"), "special tokens"),
        (SINGLE.replace("m.tool_calls[0].function.name", "m.tool_calls[0].id"), "no grammar here"),
        (TAGGED.replace('m.role == "assistant"', "m.role == 'assistant' and not m.tool_calls"), "no grammar"),
    ],
)
def test_other_templates_are_refused(template, says):
    with pytest.raises(CannotDo, match=says):
        call_form(codec(template))


def test_arguments_are_objects_of_what_is_declared():
    assert arguments_schema({"name": "x"}) == {
        "type": "object", "properties": {}, "additionalProperties": False,
    }  # fmt: skip
    assert arguments_schema(TOOL)["additionalProperties"] is False
    for given in ({"additionalProperties": True}, {"allOf": []}, {"$ref": "#/$defs/a"}):
        made = arguments_schema({"name": "x", "parameters": {"properties": {"a": {}}} | given})
        assert made.get("additionalProperties") is given.get("additionalProperties")
    for wrong in ({"type": "string"}, [1]):
        with pytest.raises(BadInput, match="no JSON schema of an object"):
            arguments_schema({"name": "x", "parameters": wrong})


@pytest.mark.parametrize("joint", ["\n", "", None])
@pytest.mark.parametrize("answer", [None, {"type": "object"}])
def test_turn_grammars_compile(joint, answer):
    form = CallForm('<tool_call>\n{"name": "', '", "arguments": ', "}\n</tool_call>", joint)
    for many in (True, False):
        check_grammar(turn_grammar(form, [TOOL, {"name": "y"}], answer=answer, many=many))
    with pytest.raises(BadInput, match="neither"):
        turn_grammar(None)
    with pytest.raises(BadInput, match="no tools"):
        form.rules([], many=True)
