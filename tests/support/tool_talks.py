"""Conversations with tool calls, and tiny models whose templates show them well, badly or not at all."""

from __future__ import annotations

import json

from refork.policies.chat import Codec
from refork.policies.local import LocalPolicy
from support.models import make_model, make_tokenizer

TOOL = {
    "type": "function",
    "function": {"name": "look", "description": "Looks.", "parameters": {"type": "object", "properties": {}}},
}


def call(name="look", at="door", number=0):
    arguments = json.dumps({"at": at})
    return {
        "id": f"call0000{number}",
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def result(text, number=0):
    return {"role": "tool", "tool_call_id": f"call0000{number}", "content": text}


SYSTEM = {"role": "system", "content": "Be brief."}
ASKED = {"role": "user", "content": "What is there?"}
CALLS = {"role": "assistant", "content": None, "tool_calls": [call()]}
TWICE = {"role": "assistant", "content": "Both.", "tool_calls": [call(), call(at="wall", number=1)]}
SAID = {"role": "assistant", "content": "A lamp."}
ONE = [SYSTEM, ASKED, CALLS, result("dark"), SAID]
TWO = [*ONE, ASKED, TWICE, result("dark"), result("cold", 1), SAID]

#: Templates of the kinds that there are: Hermes' form, one call a turn only, no tools, roles in turn only.
HERMES = """{% if tools %}<|im_start|>system
{% if messages[0].role == 'system' %}{{ messages[0].content }}

{% endif %}{% for t in tools %}{{ t | tojson }}
{% endfor %}<|im_end|>
{% elif messages[0].role == 'system' %}<|im_start|>system
{{ messages[0].content }}<|im_end|>
{% endif %}{% for m in messages %}{% if m.role in ('user', 'assistant') %}<|im_start|>{{ m.role }}
{{ m.content }}{% for c in m.tool_calls or [] %}
{%- if m.content or not loop.first %}{{ '\\n' }}{% endif %}<tool_call>
{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% elif m.role == 'tool' %}<|im_start|>user
<tool_response>
{{ m.content }}
</tool_response><|im_end|>
{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
SINGLE = HERMES.replace(
    "{% for c in m.tool_calls or [] %}",
    "{% if m.tool_calls and m.tool_calls | length > 1 %}{{ raise_exception('one call') }}{% endif %}"
    "{% for c in m.tool_calls or [] %}",
)
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
STRICT = (
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}[{{ m.role }}]{{ m.content }}[/]{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)
SILENT = "{# tool_calls #}{# tools #}" + CHATML
REFUSES = "{{ raise_exception('never') }}"
ALL = {"hermes": HERMES, "single": SINGLE, "chatml": CHATML, "strict": STRICT, "silent": SILENT, "none": None}


def codec(template):
    tokenizer = make_tokenizer(["<|im_end|>", "<|im_start|>"])
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_end|>", "<|im_start|>"]})
    tokenizer.chat_template = template
    return Codec(tokenizer)


def policy(template, seed=0):
    made = codec(template)
    model = make_model(seed, size=made.vocabulary)
    model.config.max_position_embeddings = 4096
    return LocalPolicy(model, made, name="tiny")


def put(folder, messages, tools=True, name="chat.jsonl"):
    file = folder / name
    body = {"messages": messages} | ({"tools": [TOOL]} if tools else {})
    file.write_text(json.dumps(body))
    return file
