from __future__ import annotations

import json

import pytest

from memory.memory_parts import CATALOGUE, asks, pay_run
from refork.chat import ScriptedChat
from refork.errors import ServerError
from refork_methods.memory.admission import AdmissionGuard
from refork_methods.memory.codifier import CodifierInput
from refork_methods.memory.roles.by_model import ModelCodifier, ModelRepairer, literals_of

SOURCE = '''def pay_person(apis, tools, *, user_id: int, amount: float, note: str) -> object:
    """Pay a person."""
    token = apis.pay.login(password="p-1")["token"]
    return apis.pay.send(token=token, user_id=user_id, amount=amount, note=note)
'''


def function(source=SOURCE, name="pay_person", **more):
    kinds = {"user_id": "integer", "amount": "number", "note": "string"}
    schema = {
        "type": "object",
        "properties": {k: {"type": v} for k, v in kinds.items()},
        "required": list(kinds),
    }
    fields = {"name": name, "source": source, "doc": "Pay a person.", "parameters": schema,
              "needs": ["pay.login", "pay.send"]}  # fmt: skip
    return fields | more


def given(*queries, **more):
    return CodifierInput("plan-1", "Pay somebody.", (), asks(), queries, **more)


def chat(*replies):
    return ScriptedChat([json.dumps(reply) for reply in replies])


def test_a_model_writes_tools_from_the_plan_and_the_queries():
    model = chat({"tools": [function()], "refuse": ""})
    found = ModelCodifier(model).codify(given(asks("Bob May", 35, "food")))
    assert [tool.name for tool in found.tools] == ["pay_person"]
    assert AdmissionGuard(CATALOGUE).admit(found.tools[0], ()).admitted
    shown = "\n".join(message["content"] for message in model.asked[0])
    assert json.dumps(asks("Bob May", 35, "food")) in shown
    assert all(
        step.output not in shown for step in pay_run("1", noise="the noise of a run").steps if step.output
    )


def test_a_model_may_refuse():
    found = ModelCodifier(chat({"tools": [], "refuse": "they differ"})).codify(
        given(asks("Bob May", 35, "food"))
    )
    assert (found.tools, found.refused) == ((), "they differ")


def test_support_is_checked_before_anything_is_asked():
    for queries in ((), (asks(amount=30),)):
        found = ModelCodifier(chat()).codify(given(*queries))
        assert "structurally different" in found.refused
        assert found.cost.tokens_in == 0
    assert ModelCodifier(chat({"tools": [function()]})).codify(given(support=1)).tools


def test_a_literal_of_a_single_query_is_refused():
    source = SOURCE.replace("note=note", 'note="rent"')
    found = ModelCodifier(chat({"tools": [function(source)]})).codify(given(asks("Bob May", 35, "food")))
    assert (found.tools, found.refused) == ((), "pay_person: the literal 'rent' is of some queries only")
    assert sorted(literals_of(source)) == ["p-1", "rent", "token"]
    assert literals_of("def (") == literals_of("-" * 100_000 + "1") == []


@pytest.mark.parametrize(
    "reply",
    [
        {"tools": [function()], "refuse": "and no"},
        {"tools": [function(name="pаy")]},
        {"tools": [function(needs=["send"])]},
    ],
)
def test_what_is_no_tool_is_asked_again_and_then_an_error(reply):
    with pytest.raises(ServerError, match="codifier"):
        ModelCodifier(chat(reply, reply)).codify(given(asks("Bob May", 35, "food")))
    model = chat(reply, {"tools": [function()]})
    assert ModelCodifier(model).codify(given(asks("Bob May", 35, "food"))).tools


def test_a_taken_name_is_asked_again():
    model = chat(
        {"tools": [function()]}, {"tools": [function(SOURCE.replace("pay_person", "pay_2"), "pay_2")]}
    )
    found = ModelCodifier(model).codify(given(asks("Bob May", 35, "food"), taken=("pay_person",)))
    assert [tool.name for tool in found.tools] == ["pay_2"]


def test_one_repair_and_no_more():
    broken = SOURCE.replace("apis.pay.send", "apis.pay.wire")
    tool = ModelCodifier(chat({"tools": [function(broken)]})).codify(given(support=1)).tools[0]
    model = chat({"source": SOURCE, "needs": ["pay.login", "pay.send"]})
    ruling = AdmissionGuard(CATALOGUE, repairer=ModelRepairer(model)).admit(tool, ())
    assert (ruling.admitted, ruling.repaired, ruling.tool.source) == (True, True, SOURCE)
    model = chat({"source": broken})
    ruling = AdmissionGuard(CATALOGUE, repairer=ModelRepairer(model)).admit(tool, ())
    assert (ruling.admitted, ruling.repaired, len(model.asked)) == (False, True, 1)
