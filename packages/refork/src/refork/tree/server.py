"""Trees of a PostgreSQL server: found, made, brought up to date."""

from __future__ import annotations

import time

from refork.errors import BadInput, NotATree, TreeError, TreeVersion
from refork.tree.address import FORMER_PREFIX, PREFIX, parse_address
from refork.tree.database import BUSY_SECONDS, Mode
from refork.tree.dialect import STAMPED, definition, tables
from refork.tree.postgres import PostgresDatabase
from refork.tree.schema import MIGRATIONS, VERSION
from refork.tree.seal import reseal, sealed
from refork.tree.server_guard import check


def _present(db: PostgresDatabase) -> bool:
    """Whether the tree is there; raises NotATree where its schema holds something else."""
    schema = db.address.schema
    rights = db.scalar(
        "SELECT has_schema_privilege(oid, 'USAGE') FROM pg_namespace WHERE nspname = ?", [schema]
    )
    if rights is None:
        return False
    if not rights:
        raise TreeError(
            f"this user may not use the schema {schema}",
            where=db.where,
            hint="ask its owner for the rights that docs/shared-store.md lists",
        )
    names = {
        name
        for (name,) in db.rows(
            "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE n.nspname = ? AND c.relkind = 'r'",
            [schema],
        )
    }
    if names and not {"meta", "nodes"} <= names:
        raise NotATree(f"the schema {schema} holds something else than a tree", where=db.where)
    return bool(names)


def _cluster(db: PostgresDatabase) -> str:
    """Which server's transaction numbers the rows bear; empty where that may not be asked."""
    try:
        return str(db.scalar("SELECT system_identifier FROM pg_control_system()"))
    except TreeError:
        return ""


def _create(db: PostgresDatabase) -> bool:
    """Make an empty tree; False where another process was first."""
    cluster = _cluster(db)
    with db.transaction():
        if _present(db):
            return False
        if not db.scalar("SELECT count(*) FROM pg_namespace WHERE nspname = ?", [db.address.schema]):
            db.run(f'CREATE SCHEMA "{db.address.schema}"'.encode())
        for made in tables():
            db.run(made)
        facts = {"created": repr(time.time()), "version": str(VERSION), "cluster": cluster}
        sql = "INSERT INTO meta (key, value, seal) VALUES (?, ?, ?)"
        db.write(sql, [sealed("meta", fact) for fact in facts.items()])
        # A schema that was there may hold functions and operators, which the tree's queries would find.
        check(db)
    return True


def _missing(db: PostgresDatabase) -> NotATree:
    found = db.rows("SELECT nspname FROM pg_namespace")
    trees = {name.removeprefix(p) for (name,) in found for p in (PREFIX, FORMER_PREFIX) if name.startswith(p)}
    names = ", ".join(sorted(trees)[:20])
    return NotATree(
        f"there is no tree {db.address.tree!r} in this database",
        where=db.where,
        hint=f"trees here: {names or 'none'}",
    )


def _settle(db: PostgresDatabase) -> None:
    """Bring a tree of an older version, or one restored from another server, up to date."""
    version, cluster = db.version(), _cluster(db)
    made_on = db.scalar("SELECT value FROM meta WHERE key = 'cluster'")
    moved = bool(cluster and made_on and cluster != made_on)
    if version == VERSION and not moved:
        return
    if db.mode == "r":
        what = "was restored from another server" if moved else f"has schema version {version}"
        raise TreeVersion(
            f"the tree {what} and must be brought up to date first",
            where=db.where,
            hint=f"refork tree schema '{db.where}' --migrate",
        )
    with db.transaction():
        # Another process may have been first while this one waited.
        for step in range(db.version(), VERSION):
            for change in MIGRATIONS[step]:
                db.run(definition(change))
        for table in STAMPED if moved else ():
            # Transactions of the other server: all of them are long done.
            db.run(f"UPDATE {table} SET tx = '0'".encode())
        if version < VERSION:
            reseal(db.rows, db.write)
        facts = [("version", str(VERSION)), ("cluster", cluster)]
        sql = (
            "INSERT INTO meta (key, value, seal) VALUES (?, ?, ?) "
            "ON CONFLICT (key) DO UPDATE SET value = excluded.value, seal = excluded.seal"
        )
        db.write(sql, [sealed("meta", fact) for fact in facts])


def open_server(place: str, mode: Mode = "a", wait: float = BUSY_SECONDS) -> PostgresDatabase:
    """A tree of an address: ``a`` creates it or appends, ``r`` reads only, ``x`` must not exist.

    ``wait`` is how many seconds a write waits for another writer.

    Raises:
        BadInput: a bad address, or one with a password in it.
        NotATree: no such tree, or its schema holds something else or more.
        TreeVersion: written by another schema version.
        TreeError: no connection, no rights, or ``x`` and the tree exists.
    """
    address = parse_address(place)
    if mode not in ("a", "r", "x"):
        raise BadInput(f"mode is {mode!r}; it must be 'a', 'r' or 'x'", where=address.shown)
    db = PostgresDatabase(address, mode, wait)
    try:
        found = _present(db)
        if mode == "r" and not found:
            raise _missing(db)
        made = not found and _create(db)
        if mode == "x" and not made:
            raise TreeError("the tree exists already", where=address.shown, hint="choose another name")
        if not made:
            check(db)
            _settle(db)
    except BaseException:
        db.close()
        raise
    return db
