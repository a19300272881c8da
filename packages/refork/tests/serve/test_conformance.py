"""Whatever the OpenAPI document allows, and much that it does not: answers as documented, no 5xx."""

import json

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.openapi import from_asgi
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from refork.chat import ScriptedChat
from refork.serve import create_app
from refork.serve.settings import ServerSettings
from support.planted_live import chat_policy

EXAMPLES = 12  # of each operation and mode
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
MODELS = ("local", "echo")
#: Requests that are answered.
SIMPLE = {
    "/v1/completions": {"prompt": "x"},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "x"}]},
}
#: What every other request is cut down to, or hardly one would be one that a model can answer.
PLAIN = {
    "model", "prompt", "messages", "input", "seed", "temperature", "stream", "echo", "logprobs", "tokens",
}  # fmt: skip


@pytest.fixture(scope="module")
def schema():
    models = {"local": chat_policy(), "echo": ScriptedChat(lambda messages: "yes")}
    app = create_app(
        models,
        ServerSettings(
            max_tokens=4, max_choices=3, default_tokens=4, width=4, hosts=frozenset({"testserver"})
        ),
    )
    return from_asgi("/openapi.json", app)


def repeatable(test):
    return settings(
        max_examples=EXAMPLES, deadline=None, derandomize=True, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )(test)  # fmt: skip


def asked(operation, mode):
    """Statuses of what is asked of one operation; raises what the checks find."""
    statuses = set()

    @repeatable
    @given(case=operation.as_strategy(generation_mode=mode))
    def ask(case):
        if isinstance(case.body, dict) and isinstance(case.body.get("model"), str):
            size = len(json.dumps(case.body, default=str))
            case.body = {k: v for k, v in case.body.items() if size % 4 < 2 or k in PLAIN}
            case.body["model"] = MODELS[size % 2]  # else all is 404
            if size % 4 == 2 and "prompt" in case.body:
                case.body["prompt"] = "x"
        statuses.add(case.call_and_validate(checks=CHECKS).status_code)

    ask()
    return statuses


def test_what_is_asked_as_documented_is_answered_as_documented(schema):
    found = [one.ok() for one in schema.get_all_operations()]
    statuses = {one.label: asked(one, schemathesis.GenerationMode.POSITIVE) for one in found}
    assert len(statuses) >= 6
    # What is drawn may be refused each time (what hypothesis draws depends on which modules are loaded).
    for path, body in SIMPLE.items():
        case = schema[path]["POST"].Case(body={"model": "local"} | body, media_type="application/json")
        assert case.call_and_validate(checks=CHECKS).status_code == 200


def test_what_is_not_is_refused_as_documented(schema):
    found = [one.ok() for one in schema.get_all_operations()]
    statuses = [asked(one, schemathesis.GenerationMode.NEGATIVE) for one in found if one.body]
    assert len(statuses) >= 3
    assert all(400 in one for one in statuses)
