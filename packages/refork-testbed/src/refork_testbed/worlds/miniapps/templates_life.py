"""Templates about notes, the calendar and music."""

from __future__ import annotations

from refork_testbed.worlds.miniapps.apps.calendar import HOME_ZONE, to_utc
from refork_testbed.worlds.miniapps.population import ARTISTS, EVENTS, ITEMS, PLAYLISTS, SONGS, TITLES, Draft
from refork_testbed.worlds.miniapps.template import Made, Template, delete, insert, update

#: Begins that lie on the day before in UTC; one event in three has one.
_NIGHT = ("00:15", "00:30", "01:00")


def _begin(draft: Draft) -> str:
    return draft.dice.choice(_NIGHT) if draft.dice.below(3) == 0 else draft.time()


def note_append(draft: Draft) -> Made:
    """A line more in a note."""
    title, old, text = draft.fresh(TITLES), draft.dice.choice(ITEMS), draft.dice.choice(ITEMS)
    row = draft.rows["notes"]
    place = draft.add("notes", title=title, text=old) - 1
    note = row[place]
    return Made({"title": title, "text": text}, lambda: [update("notes", note, text=f"{old}\n{text}")])


def event_new(draft: Draft) -> Made:
    """A new event."""
    title, day, time = draft.fresh(EVENTS), draft.day(), draft.time()
    minutes = draft.dice.choice((30, 45, 60, 90))
    slots = {"title": title, "day": day, "time": time, "minutes": str(minutes)}
    start = to_utc(day, time, HOME_ZONE)
    return Made(slots, lambda: [insert("events", title=title, start=start, minutes=minutes)])


def event_move(draft: Draft) -> Made:
    """An event gets another time of its day; its namesake on another day stays."""
    title, day = draft.fresh(EVENTS), draft.day()
    old = _begin(draft)
    event = draft.rows["events"][draft.event(title, day, old) - 1]
    draft.event(title, next(d for d in iter(draft.day, "") if d != day), draft.time())
    new = next(t for t in iter(draft.time, "") if t != old)
    slots = {"title": title, "day": day, "time": new}
    return Made(slots, lambda: [update("events", event, start=to_utc(day, new, HOME_ZONE))])


def event_delete(draft: Draft) -> Made:
    """Two events of one name on one day, among enough others for a second page."""
    title, day = draft.fresh(EVENTS), draft.day()
    mine = [draft.rows["events"][draft.event(title, day, time) - 1] for time in (_begin(draft), draft.time())]
    for _ in range(4):
        draft.event(draft.dice.choice([e for e in EVENTS if e not in draft.taken]), day, draft.time())
    return Made({"title": title, "day": day}, lambda: [delete("events", row) for row in mine])


def event_ask(draft: Draft) -> Made:
    """When an event begins."""
    title, day, time = draft.fresh(EVENTS), draft.day(), _begin(draft)
    draft.event(title, day, time)
    return Made({"title": title, "day": day}, list, lambda: time)


def _song(draft: Draft, artist: str, owned: int, title: str = "") -> int:
    return draft.add("songs", title=title or draft.fresh(SONGS), artist=artist, owned=owned, stars=None) - 1


def song_rate(draft: Draft) -> Made:
    """A song that another artist recorded too."""
    artist, other = draft.fresh(ARTISTS), draft.fresh(ARTISTS)
    place = _song(draft, artist, draft.dice.below(2))
    row = draft.rows["songs"][place]
    _song(draft, other, 1, row["title"])
    stars = 1 + draft.dice.below(5)
    slots = {"song": row["title"], "artist": artist, "stars": str(stars)}
    return Made(slots, lambda: [update("songs", row, stars=stars)])


def artist_rate(draft: Draft) -> Made:
    """Songs of one artist, some owned and one not."""
    artist, stars = draft.fresh(ARTISTS), 1 + draft.dice.below(5)
    mine = [draft.rows["songs"][_song(draft, artist, 1)] for _ in range(2 + draft.dice.below(2))]
    _song(draft, artist, 0)
    slots = {"artist": artist, "stars": str(stars)}
    return Made(slots, lambda: [update("songs", row, stars=stars) for row in mine])


def playlist_add(draft: Draft) -> Made:
    """A song into a playlist that is there."""
    artist, other, name = draft.fresh(ARTISTS), draft.fresh(ARTISTS), draft.fresh(PLAYLISTS)
    row = draft.rows["songs"][_song(draft, artist, draft.dice.below(2))]
    _song(draft, other, 1, row["title"])
    playlist = draft.rows["playlists"][draft.add("playlists", name=name) - 1]
    slots = {"song": row["title"], "artist": artist, "playlist": name}
    return Made(slots, lambda: [insert("tracks", playlist_id=playlist["id"], song_id=row["id"])])


def playlist_new(draft: Draft) -> Made:
    """A new playlist of one artist's songs."""
    artist, name = draft.fresh(ARTISTS), draft.fresh(PLAYLISTS)
    mine = [draft.rows["songs"][_song(draft, artist, 1)] for _ in range(2 + draft.dice.below(2))]
    _song(draft, artist, 0)
    return Made(
        {"artist": artist, "playlist": name},
        lambda: [
            insert("playlists", name=name),
            *(
                insert("tracks", playlist_id=len(draft.rows["playlists"]) + 1, song_id=row["id"])
                for row in mine
            ),
        ],
    )


TEMPLATES = (
    Template("note-append", 'Add "{text}" as a new line to my note "{title}".', note_append),
    Template(
        "event-new", 'Put "{title}" on my calendar on {day} at {time} for {minutes} minutes.', event_new
    ),
    Template("event-move", 'Move the event "{title}" of {day} to {time} on the same day.', event_move),
    Template("event-delete", 'Remove every event called "{title}" on {day}.', event_delete),
    Template("event-ask", 'At what time does "{title}" begin on {day}?', event_ask),
    Template("song-rate", 'Rate the song "{song}" by {artist} with {stars} stars.', song_rate),
    Template("artist-rate", "Rate every song by {artist} in my library with {stars} stars.", artist_rate),
    Template("playlist-add", 'Add the song "{song}" by {artist} to my playlist "{playlist}".', playlist_add),
    Template(
        "playlist-new",
        'Make a new playlist "{playlist}" of every song by {artist} in my library.',
        playlist_new,
    ),
)
