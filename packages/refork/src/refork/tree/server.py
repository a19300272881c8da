"""Trees of a PostgreSQL server: found, made, brought up to date."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Final, TypeAlias

from refork.errors import BadInput, NotATree, TreeError, TreeVersion
from refork.tree.address import FORMER_PREFIX, PREFIX, parse_address
from refork.tree.database import BUSY_SECONDS, Mode
from refork.tree.dialect import STAMPED, definition, tables, types
from refork.tree.postgres import PostgresDatabase
from refork.tree.schema import CONSTRAINTS, FIELDS, INDEXES, MIGRATIONS, TABLES, VERSION, columns
from refork.tree.seal import reseal, sealed

# Whether a schema of a server holds a tree and nothing else, asked before any of its tables is.


_HINT: Final = "ask who owns the schema; a tree is copied by `refork tree export`, which takes data only"
_HERE: Final = "(SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = ?)"
_OURS: Final = f"(SELECT oid FROM pg_catalog.pg_class WHERE relnamespace = {_HERE})"
#: What code or sight a table may have besides its rows: what it is called, and how it is found.
_BESIDES: Final = (
    ("trigger", f"SELECT tgname FROM pg_catalog.pg_trigger WHERE NOT tgisinternal AND tgrelid IN {_OURS}"),
    ("rule", f"SELECT rulename FROM pg_catalog.pg_rewrite WHERE ev_class IN {_OURS}"),
    ("row policy", f"SELECT polname FROM pg_catalog.pg_policy WHERE polrelid IN {_OURS}"),
    (
        "table that others' rows are in, or that lends its rows,",
        "SELECT c.relname FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c ON c.oid = i.inhparent "
        f"WHERE i.inhparent IN {_OURS} UNION ALL "
        "SELECT c.relname FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid "
        f"WHERE i.inhrelid IN {_OURS} AND c.relkind NOT IN ('i', 'I')",
    ),
    ("function", f"SELECT proname FROM pg_catalog.pg_proc WHERE pronamespace = {_HERE}"),
    ("operator", f"SELECT oprname FROM pg_catalog.pg_operator WHERE oprnamespace = {_HERE}"),
    (
        "type",
        f"SELECT typname FROM pg_catalog.pg_type WHERE typnamespace = {_HERE} AND typtype <> 'c' "
        "AND NOT (typelem <> 0 AND typcategory = 'A')",
    ),
)
_RELATIONS: Final = (
    "SELECT relname, relkind::text, relpersistence::text, relrowsecurity OR relforcerowsecurity "
    f"FROM pg_catalog.pg_class WHERE relnamespace = {_HERE} AND relkind NOT IN ('i', 't') "
    "ORDER BY relname"
)
_COLUMNS: Final = (
    "SELECT c.relname, a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod), a.attnotnull, "
    "a.attidentity::text || a.attgenerated::text, pg_catalog.pg_get_expr(d.adbin, d.adrelid), o.collname, "
    "a.attinhcount FROM pg_catalog.pg_class c JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid "
    "LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum "
    "LEFT JOIN pg_catalog.pg_collation o ON o.oid = a.attcollation "
    f"WHERE c.relnamespace = {_HERE} AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped "
    "ORDER BY c.relname, a.attnum"
)
_NAMES: Final = (
    "ARRAY(SELECT a.attname::text FROM pg_catalog.unnest({keys}::int2[]) WITH ORDINALITY AS k(n, at) "
    "JOIN pg_catalog.pg_attribute a ON a.attrelid = {table} AND a.attnum = k.n ORDER BY k.at)"
)
# Newer servers list NOT NULL among the constraints (``n``): here it is checked with the columns.
_CONSTRAINTS: Final = (
    f"SELECT c.conname, t.relname, c.contype::text, {_NAMES.format(keys='c.conkey', table='c.conrelid')}, "
    f"f.relname, {_NAMES.format(keys='c.confkey', table='c.confrelid')}, "
    "c.condeferrable OR NOT c.convalidated OR coalesce(c.confupdtype NOT IN ('a', ' '), false) "
    "OR coalesce(c.confdeltype NOT IN ('a', ' '), false) "
    "FROM pg_catalog.pg_constraint c JOIN pg_catalog.pg_class t ON t.oid = c.conrelid "
    "LEFT JOIN pg_catalog.pg_class f ON f.oid = c.confrelid "
    f"WHERE t.relnamespace = {_HERE} AND c.contype <> 'n'"
)
_INDEXES: Final = (
    f"SELECT i.relname, t.relname, {_NAMES.format(keys='x.indkey', table='x.indrelid')}, x.indisunique, "
    "x.indexprs IS NOT NULL OR x.indpred IS NOT NULL OR NOT x.indisvalid OR am.amname <> 'btree' "
    "OR EXISTS (SELECT 1 FROM pg_catalog.unnest(x.indclass::oid[]) AS k(n) JOIN pg_catalog.pg_opclass o "
    "ON o.oid = k.n WHERE NOT o.opcdefault OR o.opcnamespace <> 'pg_catalog'::regnamespace) "
    "FROM pg_catalog.pg_index x JOIN pg_catalog.pg_class i ON i.oid = x.indexrelid "
    "JOIN pg_catalog.pg_class t ON t.oid = x.indrelid JOIN pg_catalog.pg_am am ON am.oid = i.relam "
    f"WHERE t.relnamespace = {_HERE} AND t.relkind = 'r'"
)
_TYPES: Final = {"int8": "bigint", "bytea": "bytea", "float8": "double precision", "text": "text"}
#: A table's keys: whether unique, and its columns; and a reference, with its table and column.
Key: TypeAlias = tuple[str, bool, tuple[str, ...]]
Reference: TypeAlias = tuple[str, str, str, str]


def check(db: PostgresDatabase) -> None:
    """See that a tree's schema holds our tables and nothing else.

    Only the server's own catalogs are read, which run nothing of the schema; ``meta`` once it is known to be
    a plain table, for the version.

    Raises:
        NotATree: more, less or other than a tree has; it is named.
        TreeVersion: a tree of a version that is not known here.
    """
    found = next(_meta(db), None)
    if found is None:
        version = db.version()
        if not 1 <= version <= VERSION:
            raise TreeVersion(
                f"the tree has schema version {version}; this build reads 1 to {VERSION}",
                where=db.where,
                hint="read it with the newer version that wrote it",
            )
        found = next(_differences(db, version), None)
    if found is not None:
        raise NotATree(f"this is not a tree as any version makes it: {found}", where=db.where, hint=_HINT)


def _meta(db: PostgresDatabase) -> Iterator[str]:
    """What would run, or hide rows, when the facts of a tree are read."""
    for what, query in _BESIDES:
        schema = [db.address.schema] * query.count("?")
        for (name,) in db.rows(query, schema):
            yield f"it has a {what} {name!r}, which no tree has"
    for name, kind, persistence, hidden in db.rows(_RELATIONS, [db.address.schema]):
        if name == "meta" and (kind != "r" or persistence != "p" or hidden):
            yield "meta is not a plain table"


def _differences(db: PostgresDatabase, version: int) -> Iterator[str]:
    schema = [db.address.schema]
    kinds = dict.fromkeys(TABLES, "r") | {f"{table}_row_seq": "S" for table in TABLES if table != "meta"}
    relations = {name: rest for name, *rest in db.rows(_RELATIONS, schema)}
    for name, (kind, persistence, hidden) in relations.items():
        if name not in kinds:
            yield f"it has {name!r}, which no tree has"
        elif kind != kinds[name] or persistence != "p":
            yield f"{name} is not a lasting table or sequence"
        elif hidden:
            yield f"{name} shows each user rows of their own"
    yield from (f"it lacks {name}" for name in kinds if name not in relations)
    yield from _columns(db, version)
    yield from _keys(db)


def _columns(db: PostgresDatabase, version: int) -> Iterator[str]:
    found = {(table, name): tuple(rest) for table, name, *rest in db.rows(_COLUMNS, [db.address.schema])}
    ours = dict(_fields(version))
    for (table, name), defined in found.items():
        if (table, name) not in ours:
            yield f"it has a column {table}.{name!r}, which no tree has"
        elif defined != ours[table, name]:
            yield f"the column {table}.{name} is not defined as in a tree"
    yield from (f"it lacks the column {table}.{name}" for table, name in ours if (table, name) not in found)


def _fields(version: int) -> Iterator[tuple[tuple[str, str], tuple[str | bool | int | None, ...]]]:
    """Each column's type, whether it may be null, identity, default, collation, and no inheritance."""
    wire = {
        (table, name): kind
        for table in TABLES
        for name, kind in zip(columns(table), types(table), strict=True)
    }
    for field in FIELDS:
        if field.since <= version:
            kind = wire[field.table, field.name]
            must = "NOT NULL" in field.sql or "PRIMARY KEY" in field.sql
            identity = "d" if "INTEGER PRIMARY KEY" in field.sql else ""
            collation = "C" if kind == "text" else None
            yield (field.table, field.name), (_TYPES[kind], must, identity, None, collation, 0)
    for table in STAMPED:
        yield (table, "tx"), ("xid8", True, "", "pg_current_xact_id()", None, 0)


def _keys(db: PostgresDatabase) -> Iterator[str]:
    schema = [db.address.schema]
    unique, plain, references = _ours()
    keys, links = set[Key](), set[Reference]()
    for name, table, kind, names, other, others, odd in db.rows(_CONSTRAINTS, schema):
        link = (table, *names, str(other), *others)
        if kind == "f" and link in references and not odd:
            links.add((table, names[0], other, others[0]))
        elif kind not in "pu" or (table, True, tuple(names)) not in unique or odd:
            yield f"it has a constraint {name!r}, which no tree has"
    for name, table, names, is_unique, odd in db.rows(_INDEXES, schema):
        key = (table, is_unique, tuple(names))
        if odd or key not in unique | plain:
            yield f"it has an index {name!r}, which no tree has"
        keys.add(key)
    yield from (f"it lacks an index of {table} over {', '.join(names)}" for table, _, names in unique - keys)
    yield from (f"it lacks an index of {table} over {', '.join(names)}" for table, _, names in plain - keys)
    yield from (f"{table}.{name} refers to no other table" for table, name, *_ in references - links)


def _ours() -> tuple[set[Key], set[Key], set[Reference]]:
    """The unique keys, the other indexes and the references of a tree."""
    unique, references = set[Key](), set[Reference]()
    for field in FIELDS:
        if "UNIQUE" in field.sql or "PRIMARY KEY" in field.sql:
            unique.add((field.table, True, (field.name,)))
        if other := re.search(r"REFERENCES (\w+)\((\w+)\)", field.sql):
            references.add((field.table, field.name, other[1], other[2]))
    for table, constraint in CONSTRAINTS.items():
        names = re.search(r"UNIQUE \((.+)\)", constraint)
        assert names is not None
        unique.add((table, True, tuple(names[1].split(", "))))
    plain = set[Key]()
    for index in INDEXES:
        parts = re.search(r"ON (\w+)\((\w+)\)", index)
        assert parts is not None
        plain.add((parts[1], False, (parts[2],)))
    return unique, plain, references


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


def open_server(uri: str, mode: Mode = "a", wait: float = BUSY_SECONDS) -> PostgresDatabase:
    """A tree of an address: ``a`` creates it or appends, ``r`` reads only, ``x`` must not exist.

    ``wait`` is how many seconds a write waits for another writer.

    Raises:
        BadInput: a bad address, or one with a password in it.
        NotATree: no such tree, or its schema holds something else or more.
        TreeVersion: written by another schema version.
        TreeError: no connection, no rights, or ``x`` and the tree exists.
    """
    address = parse_address(uri)
    if mode not in ("a", "r", "x"):
        raise BadInput(f"mode is {mode!r}; it must be 'a', 'r' or 'x'", where=address.safe_text)
    db = PostgresDatabase(address, mode, wait)
    try:
        found = _present(db)
        if mode == "r" and not found:
            raise _missing(db)
        made = not found and _create(db)
        if mode == "x" and not made:
            raise TreeError("the tree exists already", where=address.safe_text, hint="choose another name")
        if not made:
            check(db)
            _settle(db)
    except BaseException:
        db.close()
        raise
    return db
