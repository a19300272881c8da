"""What a tree file holds: one table of stored fields, from which the database is made and documented."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

#: "RMFY" in the file header says that a file is ours.
APPLICATION_ID = 0x524D4659
VERSION = 3


@dataclass(frozen=True, slots=True)
class Field:
    """One stored field: its table, name, SQL column definition, meaning, and the version that brought it."""

    table: str
    name: str
    sql: str
    doc: str
    since: int = 1


def _fields(table: str, *columns: tuple[str, str, str] | tuple[str, str, str, int]) -> tuple[Field, ...]:
    return tuple(Field(table, *column) for column in columns)


FIELDS: tuple[Field, ...] = (
    *_fields(
        "meta",
        ("key", "TEXT PRIMARY KEY", "Name of a fact about the file."),
        ("value", "TEXT NOT NULL", "The fact itself."),
        ("seal", "BLOB", "Digest of the row's other fields, 16 bytes (since version 3).", 3),
    ),
    *_fields(
        "blobs",
        ("row", "INTEGER PRIMARY KEY", "Number inside the file."),
        ("digest", "BLOB NOT NULL UNIQUE", "SHA-256 of the data, 32 bytes."),
        ("data", "BLOB NOT NULL", "The bytes of a world snapshot, stored once per content."),
    ),
    *_fields(
        "nodes",
        ("row", "INTEGER PRIMARY KEY", "Number inside the file, in order of writing; parents come first."),
        ("id", "BLOB NOT NULL UNIQUE", "Digest of parent, keep, kind and key, 16 bytes; hex outside."),
        ("parent", "INTEGER REFERENCES nodes(row)", "Row of the event before; null for a root."),
        ("keep", "INTEGER", "How many of the parent's tokens stand; null means all."),
        ("kind", "TEXT NOT NULL", "task, observation, action, rewrite or verdict."),
        ("key", "TEXT NOT NULL", "Tells equal siblings apart: a draw's address, or '#' and an ordinal."),
        ("depth", "INTEGER NOT NULL", "Edges to the root."),
        ("text", "TEXT NOT NULL", "What the event adds to the transcript."),
        ("tokens", "BLOB", "Token ids the event adds, int32 little-endian."),
        ("offsets", "BLOB", "End of each token in the text in characters, int32 little-endian."),
        ("logprobs", "BLOB", "Log-probs under the sampled distribution, nats, float32 little-endian."),
        ("logprobs_t1", "BLOB", "Log-probs at temperature 1 without filters, float32 little-endian."),
        ("ref_logprobs", "BLOB", "Log-probs under the reference model, float32 little-endian."),
        ("entropy", "BLOB", "Entropy at each token over the top k, nats, float32 little-endian."),
        ("message", "TEXT", "The chat message this event is, JSON."),
        ("state_key", "TEXT", "Hash of the observation's canonical form; equal keys merge in graph credit."),
        ("snapshot", "BLOB REFERENCES blobs(digest)", "Digest of the world's exact state after the event."),
        ("policy", "TEXT", "Name of the policy that acted."),
        ("weights", "TEXT", "Digest of its weights."),
        ("settings", "TEXT", "Sampling settings that differ from the defaults, JSON."),
        ("noise", "TEXT", "Address of the noise: seed, stream, draw and turn, decimal, space between."),
        ("fork", "TEXT", "Id of the fork that drew the event."),
        ("origin", "TEXT", "Whether the world's part was real, replayed or simulated."),
        ("finish", "TEXT", "Why sampling ended: stop, length or error."),
        ("error", "TEXT", "What went wrong, for events that failed."),
        ("cost", "TEXT", "Tokens in and out, seconds, money, JSON; an absent entry is not known."),
        ("created", "REAL NOT NULL", "When it was written, seconds since 1970."),
        ("extra", "TEXT", "Anything else, JSON; a task's world and data."),
        (
            "seal",
            "BLOB",
            "Digest of the row's other fields, row and parent included, 16 bytes (since version 3).",
            3,
        ),
    ),
    *_fields(
        "producers",
        ("row", "INTEGER PRIMARY KEY", "Number inside the file; a larger one is newer."),
        ("id", "TEXT NOT NULL UNIQUE", "Digest of name, version, config and reads."),
        ("name", "TEXT NOT NULL", "Name of the judge, verifier, estimator or model."),
        ("version", "TEXT NOT NULL", "Its version."),
        ("config", "TEXT NOT NULL", "Its configuration, JSON."),
        ("reads", "TEXT NOT NULL", "Ids of the producers whose scores it read, JSON."),
        ("retired_at", "REAL", "When it was retired, seconds since 1970; null while it is live."),
        ("reason", "TEXT", "Why it was retired."),
        ("seal", "BLOB", "Digest of the row's other fields, 16 bytes (since version 3).", 3),
    ),
    *_fields(
        "scores",
        ("row", "INTEGER PRIMARY KEY", "Number inside the file."),
        ("node", "INTEGER NOT NULL REFERENCES nodes(row)", "Row of the node that was scored."),
        ("name", "TEXT NOT NULL", "What was measured, such as success or advantage."),
        ("producer", "INTEGER NOT NULL REFERENCES producers(row)", "Row of the producer that said it."),
        ("value", "REAL", "The score; null where it is an array."),
        ("array", "BLOB", "One value per token of the node, float64 little-endian."),
        ("reason", "TEXT", "Why the producer said so (since version 2).", 2),
        ("seal", "BLOB", "Digest of the row's other fields, 16 bytes (since version 3).", 3),
    ),
    *_fields(
        "forks",
        ("row", "INTEGER PRIMARY KEY", "Number inside the file."),
        ("id", "TEXT NOT NULL UNIQUE", "Id of the arm."),
        ("node", "INTEGER NOT NULL REFERENCES nodes(row)", "Row of the node it starts in."),
        ("token", "INTEGER", "After how many of its tokens; null means all."),
        ("change", "TEXT", "What was changed, JSON; null for the control."),
        ("policy", "TEXT NOT NULL", "Card of the policy that continues, JSON."),
        ("settings", "TEXT NOT NULL", "Its sampling settings, JSON."),
        ("world", "TEXT", "The world that answers."),
        ("seed", "TEXT NOT NULL", "Seed of the noise, decimal."),
        ("stream", "TEXT NOT NULL", "Stream of the noise, decimal."),
        ("extra", "TEXT NOT NULL", "Anything else, JSON."),
        ("seal", "BLOB", "Digest of the row's other fields, 16 bytes (since version 3).", 3),
    ),
    *_fields(
        "draws",
        ("row", "INTEGER PRIMARY KEY", "Number inside the file."),
        ("fork", "INTEGER NOT NULL REFERENCES forks(row)", "Row of the arm."),
        ("draw", "INTEGER NOT NULL", "Number of the draw; the same number is paired across arms."),
        ("leaf", "INTEGER NOT NULL REFERENCES nodes(row)", "Row of the draw's last node."),
        ("end", "TEXT NOT NULL", "How it ended: done, limit or error."),
        ("error", "TEXT", "What went wrong."),
        ("seal", "BLOB", "Digest of the row's other fields, 16 bytes (since version 3).", 3),
    ),
)

TABLES: tuple[str, ...] = tuple(dict.fromkeys(field.table for field in FIELDS))

CONSTRAINTS = {
    "scores": ", UNIQUE (node, name, producer)",
    "draws": ", UNIQUE (fork, draw)",
}
INDEXES = (
    "CREATE INDEX nodes_parent ON nodes(parent)",
    "CREATE INDEX forks_node ON forks(node)",
)

#: Statements that bring a file from the version they are listed under to the next one. All rows are sealed
#: after the last (:func:`refork.tree.seal.reseal`).
MIGRATIONS: dict[int, tuple[str, ...]] = {
    1: ("ALTER TABLE scores ADD COLUMN reason TEXT",),
    2: tuple(
        f"ALTER TABLE {table} ADD COLUMN seal BLOB"
        for table in ("meta", "nodes", "producers", "scores", "forks", "draws")
    ),
}


@cache
def columns(table: str) -> tuple[str, ...]:
    """Column names of a table, in order."""
    return tuple(field.name for field in FIELDS if field.table == table)


def ddl(version: int = VERSION) -> tuple[str, ...]:
    """Statements that make an empty tree of a version."""
    tables = []
    for table in TABLES:
        fields = (field for field in FIELDS if field.table == table and field.since <= version)
        body = ", ".join(f'"{field.name}" {field.sql}' for field in fields)
        tables.append(f"CREATE TABLE {table} ({body}{CONSTRAINTS.get(table, '')})")
    stamp = (f"PRAGMA application_id = {APPLICATION_ID}", f"PRAGMA user_version = {version}")
    return (*tables, *INDEXES, *stamp)


@cache
def insert_sql(table: str) -> str:
    """An INSERT of every column of a table, by position."""
    names = columns(table)
    quoted = ", ".join(f'"{name}"' for name in names)
    return f"INSERT INTO {table} ({quoted}) VALUES ({', '.join('?' * len(names))})"
