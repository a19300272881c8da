"""Keys: read, compared, asked for."""

import hmac
import logging

import pytest

from refork.errors import BadInput
from refork.serve.keys import ENVIRONMENT, EVERYBODY, ApiKeys, is_loopback, read_keys


def test_keys_of_a_file_and_of_the_environment_add_up(tmp_path):
    file = tmp_path / "keys"
    file.write_text("# ours\nfirst\n\n  second  \n")
    file.chmod(0o600)
    assert read_keys(file, {ENVIRONMENT: "third"}) == {"first", "second", "third"}
    assert read_keys(None, {}) == frozenset()


def test_a_file_that_others_may_read_is_warned_of(tmp_path, caplog):
    file = tmp_path / "keys"
    file.write_text("first")
    file.chmod(0o640)
    with caplog.at_level(logging.WARNING, "refork.server"):
        read_keys(file, {})
    assert "chmod 600" in caplog.text
    assert "first" not in caplog.text


@pytest.mark.parametrize("text", ["", "# only a comment\n", "two words", "caf\u00e9"])
def test_a_file_without_keys_or_with_impossible_ones_is_refused(tmp_path, text):
    file = tmp_path / "keys"
    file.write_text(text, encoding="utf-8")
    file.chmod(0o600)
    with pytest.raises(BadInput) as caught:
        read_keys(file, {})
    assert "two words" not in str(caught.value)


def test_a_missing_file_and_an_empty_environment_key_are_refused(tmp_path):
    with pytest.raises(BadInput):
        read_keys(tmp_path / "none", {})
    with pytest.raises(BadInput, match=ENVIRONMENT):
        read_keys(None, {ENVIRONMENT: " "})


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("[::1]", True), ("localhost", True),
        ("0.0.0.0", False), ("::", False), ("", False), ("10.0.0.1", False), ("example.org", False),
    ],
)  # fmt: skip
def test_which_addresses_are_of_this_machine(host, local):
    assert is_loopback(host) is local


@pytest.mark.parametrize(
    ("header", "known"),
    [
        ("Bearer one", True),
        ("bearer two", True),
        ("Bearer  two ", True),
        ("Bearer three", False),
        ("Basic one", False),
        ("one", False),
        ("Bearer ", False),
        ("", False),
        (None, False),
        ("Bearer caf\u00e9", False),
    ],
)
def test_who_is_let_in(header, known):
    assert (ApiKeys(["one", "two"]).holder(header) is not None) is known


def test_a_holder_is_named_by_digest_and_two_are_told_apart():
    keys = ApiKeys(["one", "two"])
    first, second = keys.holder("Bearer one"), keys.holder("Bearer two")
    assert first != second
    assert "one" not in first
    assert ApiKeys([]).holder(None) == EVERYBODY


def test_every_key_is_compared_whichever_was_sent(monkeypatch):
    """Constant time: neither the key that fits nor its place changes how many comparisons there are."""
    counts = []
    real = hmac.compare_digest
    monkeypatch.setattr(
        "refork.serve.keys.hmac.compare_digest", lambda a, b: counts.append(len(a)) or real(a, b)
    )
    keys = ApiKeys(["a", "bb", "ccc"])
    for sent in ("a", "bb", "ccc", "unknown", "x" * 1000):
        counts.clear()
        keys.holder(f"Bearer {sent}")
        assert counts == [32, 32, 32]
