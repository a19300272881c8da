"""Server settings refuse what cannot be meant."""

import pytest

from refork.errors import BadInput
from refork.serve.settings import ServerSettings, changed


def test_defaults_serve_this_machine_only_and_need_no_key():
    plain = ServerSettings()
    assert plain.host == "127.0.0.1"
    assert not plain.keys


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"width": 0}, "width"),
        ({"lanes": True}, "lanes"),
        ({"waiting": -1}, "waiting"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_choices": 1.5}, "max_choices"),
        ({"timeout_s": 0.0}, "timeout_s"),
        ({"body_s": float("inf")}, "body_s"),
        ({"port": 65536}, "port"),
        ({"keys": frozenset({" a"})}, "spaces"),
        ({"keys": frozenset({""})}, "empty"),
        ({"host": "0.0.0.0"}, "no key"),
        ({"host": "::"}, "no key"),
        ({"host": ""}, "no key"),
        ({"host": "192.168.0.7"}, "no key"),
    ],
)
def test_a_bad_setting_is_named(change, says):
    with pytest.raises(BadInput, match=says):
        ServerSettings(**change)


def test_with_a_key_every_address_may_be_listened_on():
    assert ServerSettings(host="0.0.0.0", keys=frozenset({"k"})).host == "0.0.0.0"


def test_no_limit_is_none_and_nothing_may_wait():
    assert ServerSettings(timeout_s=None, waiting=0, max_tokens=None).waiting == 0


def test_settings_do_not_show_keys():
    assert "secret" not in repr(ServerSettings(keys=frozenset({"secret"})))


def test_settings_are_changed_by_name():
    items = ["timeout_s=none", "max_tokens=4096", "record_strict=True", "body_s=2.5"]
    found = changed(ServerSettings(width=3), items)
    assert (found.timeout_s, found.max_tokens, found.record_strict, found.body_s) == (None, 4096, True, 2.5)
    assert found.width == 3


@pytest.mark.parametrize(
    "item", ["speed=1", "max_tokens", "keys=a", "body_s=none", "body_s=true", "max_body=x"]
)
def test_a_change_that_means_nothing_is_refused(item):
    with pytest.raises(BadInput):
        changed(ServerSettings(), [item])
