"""Music: a shop of songs, the user's library, ratings and playlists."""

from __future__ import annotations

from refork.types import Json
from refork_testbed.worlds.miniapps.service import Refusal, entry, paged
from refork_testbed.worlds.miniapps.shift import Shift
from refork_testbed.worlds.miniapps.store import Store


def _song_json(row: Json) -> Json:
    return {"song_id": row["id"], "title": row["title"], "artist": row["artist"], "stars": row["stars"]}


def list_library(store: Store, shift: Shift, given: Json) -> Json:
    """Songs that the user owns."""
    rows = store.query("SELECT * FROM songs WHERE owned = 1 ORDER BY id")
    return paged([_song_json(row) for row in rows], given, shift)


def search(store: Store, shift: Shift, given: Json) -> Json:
    """Songs of the whole shop whose title or artist holds a text."""
    wanted = given["query"].lower()
    rows = store.query("SELECT * FROM songs ORDER BY id")
    found = [row for row in rows if wanted in row["title"].lower() or wanted in row["artist"].lower()]
    return paged([_song_json(row) for row in found], given, shift)


def list_playlists(store: Store, shift: Shift, given: Json) -> Json:
    """Playlists, oldest first."""
    return paged(store.query("SELECT id AS playlist_id, name FROM playlists ORDER BY id"), given, shift)


def create_playlist(store: Store, shift: Shift, given: Json) -> Json:
    """A new empty playlist; a name that is taken is refused."""
    if store.query("SELECT id FROM playlists WHERE name = ?", given["name"]):
        raise Refusal(409, f"there is already a playlist {given['name']!r}")
    return {"playlist_id": store.insert("playlists", name=given["name"]), "name": given["name"]}


def add_song(store: Store, shift: Shift, given: Json) -> Json:
    """Put a song into a playlist; one that is there already is refused."""
    column = "id" if shift.ids else "name"
    found = store.query(f"SELECT * FROM playlists WHERE {column} = ?", given["playlist"])
    if not found:
        raise Refusal(404, f"there is no playlist {given['playlist']!r}")
    song = entry(store, "songs", given["song_id"], "song")
    playlist = found[0]["id"]
    if store.query("SELECT id FROM tracks WHERE playlist_id = ? AND song_id = ?", playlist, song["id"]):
        raise Refusal(409, f"song {song['id']} is in {found[0]['name']!r} already")
    store.insert("tracks", playlist_id=playlist, song_id=song["id"])
    return {"playlist": found[0]["name"], "song": song["title"], "artist": song["artist"]}


def rate(store: Store, shift: Shift, given: Json) -> Json:
    """Give stars."""
    song = entry(store, "songs", given["song_id"], "song")
    if not 1 <= given["stars"] <= 5:
        raise Refusal(422, f"stars: {given['stars']} is not 1 to 5")
    store.update("songs", song["id"], stars=given["stars"])
    return {"song": song["title"], "artist": song["artist"], "stars": given["stars"]}
