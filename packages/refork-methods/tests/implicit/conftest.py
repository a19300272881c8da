"""A policy and a reference: two untrained transformers with one small tokenizer."""

import pytest

from support.implicit_policies import make_policy


@pytest.fixture(scope="session")
def policy():
    return make_policy(1)


@pytest.fixture(scope="session")
def reference():
    return make_policy(2)


@pytest.fixture
def messages():
    return [
        {"role": "system", "content": "open the door"},
        {"role": "user", "content": "at the door"},
        {"role": "assistant", "content": "go north"},
        {"role": "user", "content": "at north"},
        {"role": "assistant", "content": "", "tool_calls": [{"name": "open", "arguments": {"key": 1}}]},
        {"role": "tool", "content": "open"},
        {"role": "assistant", "content": ""},
    ]
