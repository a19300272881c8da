"""Fixtures of the policy tests."""

import contextlib

import pytest

from refork.policies.remote import RemotePolicy
from refork.policies.remote.calls import Patience
from support.openai_server import Script, serving


@pytest.fixture
def remote(monkeypatch):
    """Start servers and policies on them; everything is closed at the end. Nothing ever sleeps."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "OPENAI_API_KEY", "REFORK_API_KEY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    with contextlib.ExitStack() as stack:

        def start(script=None, **options):
            script = script or Script()
            url = stack.enter_context(serving(script))
            slept = []
            options.setdefault("patience", Patience(tries=4))
            options.setdefault("sleep", slept.append)
            policy = RemotePolicy(options.pop("url", url), options.pop("model", "tiny"), **options)
            stack.callback(policy.close)
            policy.slept, policy.script, policy.url = slept, script, url
            return policy

        yield start
