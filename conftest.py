"""For all tests: one thread, no network, and shape checks of the pure modules."""

import gc
import os
import signal
import socket
import tempfile

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ["HF_HUB_OFFLINE"] = "1"

import pytest
from hypothesis import Phase, settings
from jaxtyping import install_import_hook

from support.executed import Finder

#: Modules of pure functions on arrays: their annotated shapes and types are checked on every call.
PURE = [
    "refork_methods.decide.calibrate",
    "refork_methods.decide.frontier",
    "refork_methods.decide.regret",
    "refork.stats",
    "refork_methods.pin.frameworks.rules_agent_framework",
    "refork_methods.pin.frameworks.rules_autogen",
    "refork_methods.pin.frameworks.rules_langchain",
    "refork_methods.speculate.anchors",
    "refork_methods.speculate.attention",
    "refork_methods.speculate.heads",
    "refork_methods.speculate.loss",
]

install_import_hook(PURE, "beartype.beartype")

# Where only pass or fail matters (tests/test_mutations.py), and on every run: no time limits, no surprises.
settings.register_profile("repeatable", deadline=None, derandomize=True, database=None)
settings.register_profile(
    "no-shrink", settings.get_profile("repeatable"), phases=[Phase.explicit, Phase.generate]
)
settings.load_profile("repeatable")

LOCAL = {"localhost", "127.0.0.1", "::1", "", None, b"localhost"}
_connect, _getaddrinfo = socket.socket.connect, socket.getaddrinfo


def _connect_locally(self, address):
    if self.family in (socket.AF_INET, socket.AF_INET6) and address[0] not in LOCAL:
        raise AssertionError(f"a test reached for the network: {address}")
    return _connect(self, address)


def _resolve_locally(host, *args, **kwargs):
    if host not in LOCAL:
        raise AssertionError(f"a test looked up a name: {host!r}")
    return _getaddrinfo(host, *args, **kwargs)


socket.socket.connect = _connect_locally
socket.getaddrinfo = _resolve_locally

EXECUTED = Finder(["refork", "refork_methods", "refork_worlds", "refork_testbed"], checked=PURE)
LINES = bool(os.environ.get("COV_LINES"))  # write which lines of the package run, .coverage.*
if LINES:
    EXECUTED.install()


def pytest_configure(config):
    # A shell that runs the tests in the background has them ignore Ctrl-C, and so would all that they start.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not hasattr(config, "workerinput"):  # workers have that of the process which started them
        config.refork_home = tempfile.TemporaryDirectory(prefix="refork-tests-home-")
        os.environ["REFORK_HOME"] = config.refork_home.name  # never what the developer has built


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection():
    gc.disable()  # what is read now stays: to look for garbage in it takes a quarter of the time
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()  # a million objects of libraries and tests, which no later collection need look at
        gc.set_threshold(20_000)  # most of what a test makes is gone by then without a collection
        gc.enable()


def pytest_unconfigure(config):
    if hasattr(config, "refork_home"):
        config.refork_home.cleanup()


def pytest_sessionfinish(session):
    if LINES:
        EXECUTED.write(session.config.rootpath)
