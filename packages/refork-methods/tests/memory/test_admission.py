"""A tool is admitted whole, or the registry stays byte for byte as it was."""

from dataclasses import replace

import pytest

from refork.errors import ServerError
from refork.policies.base import Cost
from refork.sandbox import Limits, Sandbox
from refork_methods.memory.admission import ReplayCase, admit
from refork_methods.memory.registry import ToolRegistry
from refork_methods.memory.tool import Tool

SCHEMA = {"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]}
CATALOGUE = {
    "mail.send": {
        "type": "object",
        "properties": {"to": {"type": "string"}, "cc": {"type": "string"}},
        "required": ["to"],
    },
    "mail.list": {"type": "object", "properties": {}},
}  # fmt: skip
SOURCE = '''def write(apis, tools, *, to: str) -> object:
    """Write to somebody.

    Args:
        to: whom.
    """
    return apis.mail.send(to=to)
'''
WRITE = Tool(
    "t1", "write", SOURCE, "Write to somebody.", SCHEMA, ("mail.send",), "p1", ("write to ann", "write bob")
)


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox(Limits(seconds=60)) as made:
        yield made


def changed(old, new, **fields):
    assert old in SOURCE
    return replace(WRITE, source=SOURCE.replace(old, new), **fields)


def test_an_honest_tool_is_admitted(sandbox):
    done = admit(WRITE, ToolRegistry(), CATALOGUE, sandbox)
    assert done.admitted, done.reason
    assert done.registry.names == ("write",)
    assert not done.repaired
    assert done.cost == Cost(tokens_in=0, tokens_out=0)


BODY = "return apis.mail.send(to=to)"
BAD = {
    "does not compile": (changed("return", "return return"), "does not parse"),
    "import": (changed(BODY, "import os"), "'os' is not on the list"),
    "import when loaded": (replace(WRITE, source="import socket\n" + SOURCE), "'socket' is not on the list"),
    "an impossible default": (
        changed("to: str", "to: str = {[1]: 2}", parameters={**SCHEMA, "required": []}),
        "must be a constant",
    ),
    "other letters": (changed("*, to:", "*, tо:"), "letters beyond ASCII"),
    "no function": (changed("def write", "def other"), "one function 'write', not 0"),
    "two functions": (replace(WRITE, source=SOURCE * 2), "not 2"),
    "convention": (changed("(apis, tools, *, to: str)", "(to: str)"), "must be write(apis, tools"),
    "positional": (changed("tools, *, to", "tools, to"), "the function must be"),
    "open keywords": (changed("to: str", "to: str, **more"), "the function must be"),
    "other parameter": (changed("*, to: str", "*, who: str"), "takes who, the parameters say to"),
    "other type": (changed("to: str", "to: int"), "'to' is integer in the source"),
    "no type": (changed("to: str", "to"), "needs one of the types"),
    "default": (changed("to: str", "to: str = 'ann'"), "without default are nothing, required are to"),
    "no docstring": (replace(WRITE, source=f"def write(apis, tools, *, to: str): {BODY}\n"), "docstring"),
    "other doc": (replace(WRITE, doc="Deletes all."), "docstring does not begin"),
    "clash of function": (
        replace(WRITE, name="send", source=SOURCE.replace("def write", "def send")),
        "clashes with the environment's 'mail.send'",
    ),
    "clash of app": (
        replace(WRITE, name="mail", source=SOURCE.replace("def write", "def mail")),
        "clashes with the environment's 'mail.",
    ),
    "reserved": (replace(WRITE, name="tools", source=SOURCE.replace("def write", "def tools")), "else"),
    "undeclared": (changed(BODY, "apis.mail.list()\n    " + BODY), "which its needs do not declare"),
    "idle need": (replace(WRITE, needs=("mail.send", "mail.list")), "mail.list, which it never calls"),
    "missing function": (
        changed("apis.mail.send(to=to)", "apis.mail.burn(to=to)", needs=("mail.burn",)),
        "the environment has no function 'mail.burn'",
    ),
    "missing tool": (changed("apis.mail.send(", "tools.helper(", needs=("tools.helper",)), "no tool"),
    "calls itself": (changed(BODY, "return write(apis, tools, to=to)", needs=()), "calls itself"),
    "needs itself": (changed("apis.mail.send", "tools.write", needs=("tools.write",)), "depends on itself"),
    "hidden call": (changed(BODY, "mail = apis.mail\n    return mail.send(to=to)"), "may be used as"),
    "unknown keyword": (changed("send(to=to)", "send(to=to, subject='x')"), "no parameter 'subject'"),
    "missing keyword": (changed("send(to=to)", "send(cc=to)"), "mail.send needs 'to'"),
    "computed default": (
        changed("to: str", "to: str = str(1)", parameters={**SCHEMA, "required": []}),
        "the default of 'to' must be a constant",
    ),
    "impossible default": (
        changed("to: str", "to: str = {[]: 1}", parameters={**SCHEMA, "required": []}),
        "the default of 'to' must be a constant",
    ),
    "positional call": (changed("send(to=to)", "send(to)"), "keyword arguments only"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_a_refusal_names_its_reason_and_leaves_the_registry_alone(case, sandbox):
    tool, words = BAD[case]
    other = replace(WRITE, id="t0", name="other", source=SOURCE.replace("def write", "def other"), plan="p0")
    registry = admit(other, ToolRegistry(), CATALOGUE, sandbox).registry
    before = registry.to_bytes()
    done = admit(tool, registry, CATALOGUE, sandbox)
    assert not done.admitted
    assert words in done.reason
    assert done.registry is registry
    assert registry.to_bytes() == before


def test_a_name_is_taken_unless_the_plan_is_the_same(sandbox):
    registry = admit(WRITE, ToolRegistry(), CATALOGUE, sandbox).registry
    assert "another plan" in admit(replace(WRITE, plan="p2"), registry, CATALOGUE, sandbox).reason
    revised = replace(WRITE, id="t2")
    assert admit(revised, registry, CATALOGUE, sandbox).registry.tool("write").id == "t2"


def test_a_revision_may_not_come_to_depend_on_itself_through_others(sandbox):
    registry = admit(WRITE, ToolRegistry(), CATALOGUE, sandbox).registry
    user = replace(
        WRITE, name="user", plan="p2", needs=("tools.write",),
        source=SOURCE.replace("def write", "def user").replace("apis.mail.send", "tools.write"),
    )  # fmt: skip
    registry = admit(user, registry, CATALOGUE, sandbox).registry
    assert registry.names == ("user", "write")
    circular = changed("apis.mail.send", "tools.user", needs=("tools.user",))
    assert "itself through other tools" in admit(circular, registry, CATALOGUE, sandbox).reason


class Mender:
    name = "mender"

    def __init__(self, answer):
        self.answer, self.asked = answer, []

    def repair(self, tool, reason):
        self.asked.append((tool, reason))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer, Cost(tokens_in=7, tokens_out=3)


def test_one_repair_and_no_second(sandbox):
    bad, _ = BAD["unknown keyword"]
    mender = Mender(WRITE)
    done = admit(bad, ToolRegistry(), CATALOGUE, sandbox, mender)
    assert done.admitted
    assert done.repaired
    assert "subject" in done.first_reason
    assert done.cost.tokens_in == 7
    assert mender.asked == [(bad, done.first_reason)]
    registry = ToolRegistry()
    stubborn = Mender(BAD["import"][0])
    done = admit(bad, registry, CATALOGUE, sandbox, stubborn)
    assert not done.admitted
    assert done.registry is registry
    assert "'os'" in done.reason
    assert len(stubborn.asked) == 1
    done = admit(bad, registry, CATALOGUE, sandbox, Mender(ServerError("no usable reply")))
    assert not done.admitted
    assert "its repair failed: no usable reply" in done.reason


def test_an_admitted_tool_asks_for_no_repair(sandbox):
    mender = Mender(WRITE)
    assert admit(WRITE, ToolRegistry(), CATALOGUE, sandbox, mender).admitted
    assert mender.asked == []


def test_replay_on_recorded_states_is_optional_and_can_refuse(sandbox):
    sent = []

    def restore():
        def call(name, arguments):
            sent.append((name, arguments))
            if arguments["to"] == "nobody":
                raise LookupError("no such person")
            return {"id": 1}

        return call

    fine = ReplayCase({"to": "ann"}, restore)
    assert admit(WRITE, ToolRegistry(), CATALOGUE, sandbox, replay=[fine]).admitted
    assert sent == [("mail.send", {"to": "ann"})]
    broken = ReplayCase({"to": "nobody"}, restore)
    done = admit(WRITE, ToolRegistry(), CATALOGUE, sandbox, replay=[fine, broken])
    assert "replay 2 of 2 was not accepted: error" in done.reason
    wrong = ReplayCase({"to": "ann"}, restore, accept=lambda result: result.value == {"id": 2})
    assert "it gave {'id': 1}" in admit(WRITE, ToolRegistry(), CATALOGUE, sandbox, replay=[wrong]).reason


def test_what_the_deterministic_codifier_makes_is_admitted(sandbox):
    from refork_methods.memory.codifier import CodifierInput, SkeletonCodifier
    from refork_methods.memory.skeleton import CallStep, Constant, Slot

    step = CallStep(
        "call", "done", "mail.send", (("to", Slot("to", "ann")), ("cc", Constant("me"))),
    )  # fmt: skip
    given = CodifierInput("p9", "Send it.", (step,), "mail ann for me", ("mail bob for me",), support=1)
    codified = SkeletonCodifier().codify(given)
    assert codified.tools, codified.refused
    done = admit(codified.tools[0], ToolRegistry(), CATALOGUE, sandbox)
    assert done.admitted, (done.reason, codified.tools[0].source)
