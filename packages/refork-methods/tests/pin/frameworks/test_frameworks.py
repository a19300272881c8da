"""The names of the folder, and what is said where a package is missing."""

import sys
from importlib import import_module

import pytest

from refork.chat import ScriptedChat
from refork.errors import BadInput, MissingExtra, install_command
from refork_methods.pin import frameworks
from support.chat_histories import plain

MODULES = {
    "langchain_messages": "langchain_core.callbacks",
    "langmem": "langmem.short_term",
    "langgraph": "langgraph.graph",
    "langchain": "langchain.agents.middleware",
    "autogen_messages": "autogen_core",
    "autogen_client": "autogen_core",
    "autogen": "autogen_core.model_context",
    "autogen_state": "autogen_core.model_context",
    "agent_framework_messages": "agent_framework",
    "agent_framework_client": "agent_framework",
    "agent_framework": "agent_framework",
}


@pytest.mark.parametrize("name", frameworks.__all__)
def test_every_name_is_there(name):
    if name == "pinned_subagents":
        pytest.importorskip("deepagents", reason="needs deepagents: make test-agents")
    assert getattr(frameworks, name).__name__ == name
    assert name in dir(frameworks)


def test_no_other_name():
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        getattr(frameworks, "Nonsense")  # noqa: B009


@pytest.mark.parametrize("module", MODULES)
def test_a_missing_package_is_named_with_its_extra(module, monkeypatch):
    whole = f"refork_methods.pin.frameworks.{module}"
    import_module(whole)
    monkeypatch.delitem(sys.modules, whole)
    monkeypatch.setitem(sys.modules, MODULES[module], None)
    with pytest.raises(MissingExtra, match="is not installed") as caught:
        import_module(whole)
    assert caught.value.hint == install_command("harness")


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("LangMemCompactor", {"max_tokens": 300}),
        ("LangGraphNodeCompactor", {}),
        ("LangChainMiddlewareCompactor", {"trigger": ("messages", 6), "keep": ("messages", 2)}),
    ],
)
def test_a_refusal_of_the_chat_model_comes_through_and_is_not_asked_again(name, settings):
    summariser = ScriptedChat([])
    with pytest.raises(BadInput, match="no reply number 1"):
        getattr(frameworks, name)(summariser, **settings).compact(plain(20))
    assert len(summariser.asked) == 1
