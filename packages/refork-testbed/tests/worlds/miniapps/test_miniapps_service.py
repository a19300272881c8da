"""The apps: tokens, pages, zones, near duplicates, and wrong calls that are answers."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refork_testbed.worlds.miniapps.catalogue import PAGE_SIZE, TOKEN_LIFE, catalogue
from refork_testbed.worlds.miniapps.scenarios import scenario
from refork_testbed.worlds.miniapps.service import PASSWORDS, USERNAME, Service, is_refused
from refork_testbed.worlds.miniapps.shift import Shift
from refork_testbed.worlds.miniapps.store import Store


def service(shift: Shift = Shift(), name: str = "event-delete", seed: int = 3) -> Service:  # noqa: B008
    return Service(Store(scenario(name, seed).rows), shift)


def log_in(apps: Service, app: str) -> str:
    return apps.call(f"{app}.login", {"username": USERNAME, "password": PASSWORDS[app]})["access_token"]


def test_the_catalogue_has_typed_functions_of_five_apps():
    functions = catalogue()
    assert len(functions) == 32
    assert len({one.app for one in functions}) == 5
    assert len({one.name for one in functions}) == len(functions)
    for one in functions:
        assert one.doc
        assert set(one.parameters["required"]) <= set(one.parameters["properties"])
        assert ("access_token" in one.parameters["required"]) == (not one.name.endswith(".login"))
    assert [one.name for one in functions if not one.read_only] == [
        "mail.send", "mail.archive", "pay.send", "pay.request", "pay.approve", "pay.cancel", "notes.create",
        "notes.append", "notes.replace", "calendar.create_event", "calendar.move_event",
        "calendar.delete_event", "music.create_playlist", "music.add_song", "music.rate",
    ]  # fmt: skip


def test_read_only_functions_change_nothing_and_the_others_do():
    apps = service()
    tokens = {app: log_in(apps, app) for app in PASSWORDS}
    before = apps.store.rows(hidden=False)
    given = {"page": 0, "query": "a", "name": "a", "day": "2026-05-05", "message_id": 1, "note_id": 1}
    for one in catalogue():
        if one.read_only and not one.name.endswith(".login"):
            keys = set(one.parameters["properties"]) & set(given)
            answer = apps.call(one.name, {k: given[k] for k in keys} | {"access_token": tokens[one.app]})
            assert not is_refused(answer), one.name
    assert apps.store.rows(hidden=False) == before


@pytest.mark.parametrize(
    ("name", "arguments", "status"),
    [
        ("mail.teleport", {}, 404),
        ("mail.show", {"message_id": 1}, 422),
        ("mail.show", {"message_id": "1", "access_token": "TOKEN"}, 422),
        ("mail.show", {"message_id": True, "access_token": "TOKEN"}, 422),
        ("mail.show", {"message_id": 999, "access_token": "TOKEN"}, 404),
        ("mail.show", {"message_id": 1, "access_token": "TOKEN", "extra": 1}, 422),
        ("mail.show", {"message_id": 1, "access_token": "forged"}, 401),
        ("pay.list_payments", {"access_token": "TOKEN"}, 401),
        ("mail.login", {"username": USERNAME, "password": "guess"}, 401),
        ("mail.send", {"to": "Ann Lee", "subject": "", "body": "", "access_token": "TOKEN"}, 422),
        ("mail.send", {"to": "a@b.c", "subject": "\ud800", "body": "", "access_token": "TOKEN"}, 422),
        ("mail.show", {"message_id": 2**70, "access_token": "TOKEN"}, 422),
    ],
)
def test_a_wrong_call_is_an_answer_that_changes_nothing(name, arguments, status):
    apps = service()
    token = log_in(apps, "mail")
    before = apps.store.rows(hidden=False)
    answer = apps.call(name, {k: token if v == "TOKEN" else v for k, v in arguments.items()})
    assert answer["status_code"] == status
    assert answer["message"]
    assert apps.store.rows(hidden=False) == before


def test_archiving_twice_paying_nobody_and_rating_out_of_range_are_refused():
    apps = service()
    mail, pay, music = (log_in(apps, app) for app in ("mail", "pay", "music"))
    inbox = apps.call("mail.list_inbox", {"access_token": mail})["items"]
    first = {"message_id": inbox[0]["message_id"], "access_token": mail}
    assert apps.call("mail.archive", first)["folder"] == "archive"
    assert apps.call("mail.archive", first)["status_code"] == 409
    nobody = {"user_id": 999, "amount": 5, "note": "x", "access_token": pay}
    assert apps.call("pay.send", nobody)["status_code"] == 404
    assert apps.call("pay.send", nobody | {"user_id": 1, "amount": 5.5})["status_code"] == 422
    assert apps.call("pay.send", nobody | {"user_id": 1, "amount": -5})["status_code"] == 422
    assert apps.call("music.rate", {"song_id": 1, "stars": 6, "access_token": music})["status_code"] == 422


def test_a_token_works_for_its_life_and_then_expires():
    apps = service()
    token = log_in(apps, "notes")
    for _ in range(TOKEN_LIFE):
        assert not is_refused(apps.call("notes.list_notes", {"access_token": token}))
    assert apps.call("notes.list_notes", {"access_token": token})["message"].startswith(
        "the access token has expired"
    )
    assert apps.logins() == ()
    again = log_in(apps, "notes")
    assert again != token
    assert not is_refused(apps.call("notes.list_notes", {"access_token": again}))
    assert apps.logins() == ("notes",)


@pytest.mark.parametrize("first", [0, 1])
def test_pages_hold_every_entry_once_and_the_rest_is_empty(first):
    apps = service(Shift(pages=bool(first)))
    token = log_in(apps, "mail")
    total = sum(row["folder"] == "inbox" for row in apps.store.query("SELECT folder FROM messages"))
    seen = []
    page = first
    while True:
        answer = apps.call("mail.list_inbox", {"page": page, "access_token": token})
        assert answer["page"] == page
        assert len(answer["items"]) <= PAGE_SIZE
        seen += [item["message_id"] for item in answer["items"]]
        if page == answer["last_page"]:
            break
        page += 1
    assert len(seen) == len(set(seen)) == total > 2 * PAGE_SIZE
    for outside in (first - 1, page + 1, -7):
        assert apps.call("mail.list_inbox", {"page": outside, "access_token": token})["items"] == []
    default = apps.call("mail.list_inbox", {"access_token": token})
    assert default["page"] == first


def test_times_are_utc_unless_a_zone_is_given():
    apps = service()
    token = log_in(apps, "calendar")
    given = {"title": "Night", "day": "2026-05-10", "time": "00:30", "minutes": 30, "access_token": token}
    local = apps.call("calendar.create_event", given | {"zone": "+02:00"})
    plain = apps.call("calendar.create_event", given)
    assert local["shown_at_home"] == "2026-05-10 00:30"
    assert plain["shown_at_home"] == "2026-05-10 02:30"

    def ids(day: str, **zone: str) -> set[int]:
        found, page = [], 0
        while items := apps.call(
            "calendar.list_events", {"day": day, "page": page, "access_token": token} | zone
        )["items"]:
            found, page = found + items, page + 1
        return {item["event_id"] for item in found}

    assert local["event_id"] in ids("2026-05-09")
    assert local["event_id"] not in ids("2026-05-10")
    assert {local["event_id"], plain["event_id"]} <= ids("2026-05-10", zone="+02:00")
    given["access_token"] = log_in(apps, "calendar")
    for zone in ("Berlin", "+2", "+15:00", "utc"):
        assert apps.call("calendar.create_event", given | {"zone": zone})["status_code"] == 422
    for day, time in (
        ("2026-02-30", "10:00"),
        ("soon", "10:00"),
        ("2026-05-10", "25:00"),
        ("0999-01-01", "00:10"),
    ):
        answer = apps.call("calendar.create_event", given | {"day": day, "time": time, "zone": "+02:00"})
        assert answer["status_code"] == 422


def test_near_duplicates_differ_where_it_matters():
    apps = service()
    notes, music, mail = (log_in(apps, app) for app in ("notes", "music", "mail"))
    apps.call("notes.append", {"note_id": 1, "text": "more", "access_token": notes})
    assert apps.call("notes.show", {"note_id": 1, "access_token": notes})["text"].endswith("\nmore")
    apps.call("notes.replace", {"note_id": 1, "text": "more", "access_token": notes})
    assert apps.call("notes.show", {"note_id": 1, "access_token": notes})["text"] == "more"
    owned = {row["id"] for row in apps.store.query("SELECT id FROM songs WHERE owned = 1")}
    found = apps.call("music.list_library", {"access_token": music})["items"]
    assert {song["song_id"] for song in found} <= owned
    everything = apps.store.query("SELECT id FROM songs")
    assert len(owned) < len(everything)
    archived = apps.store.query("SELECT subject FROM messages WHERE folder = 'archive'")[0]["subject"]
    hits = apps.call("mail.search", {"query": archived, "access_token": mail})["items"]
    assert "archive" in {hit["folder"] for hit in hits}


def test_the_shifts_change_one_convention_and_the_documentation_says_so():
    sent = {"user_id": 1, "amount": 34, "note": "x"}
    usual, cents = service(), service(Shift(cents=True))
    assert usual.call("pay.send", sent | {"access_token": log_in(usual, "pay")})["amount_shown"] == "$34.00"
    assert cents.call("pay.send", sent | {"access_token": log_in(cents, "pay")})["amount_shown"] == "$0.34"
    by_id = service(Shift(ids=True))
    token = log_in(by_id, "music")
    name = by_id.store.query("SELECT name FROM playlists WHERE id = 1")[0]["name"]
    song = {"song_id": 1, "access_token": token}
    assert by_id.call("music.add_song", song | {"playlist": name})["status_code"] == 422
    assert by_id.call("music.add_song", song | {"playlist": 1})["playlist"] == name
    plain = {one.name: (one.doc, one.parameters) for one in catalogue()}
    for shift in (Shift(pages=True), Shift(cents=True), Shift(ids=True)):
        changed = {one.name for one in catalogue(shift) if (one.doc, one.parameters) != plain[one.name]}
        expected = {
            "pages": {name for name, (doc, _) in plain.items() if "paged" in doc},
            "cents": {"pay.send", "pay.request"},
            "ids": {"music.add_song"},
        }[str(shift)]
        assert changed == expected


_VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=12),
    st.lists(st.integers(), max_size=2), st.just("2026-05-09"), st.just("10:00"), st.integers(0, 12),
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_no_call_whatever_raises(data):
    apps = service()
    tokens = {app: log_in(apps, app) for app in PASSWORDS}
    for _ in range(4):
        one = data.draw(st.sampled_from(catalogue()))
        keys = data.draw(st.lists(st.sampled_from(list(one.parameters["properties"])), unique=True))
        given = {key: data.draw(_VALUES) for key in keys} | {"access_token": tokens[one.app]}
        answer = apps.call(one.name, given)
        assert json.loads(json.dumps(answer)) == answer
