"""Small trees for the tests of the tree: written by hand, drawn by hypothesis, or of an old version."""

from __future__ import annotations

import sqlite3
from typing import Any

import numpy as np
from hypothesis import strategies as st

from refork.policies.base import Cost
from refork.sampling.noise import NoiseKey
from refork.tree import DrawRecord, ForkRecord, NewNode, Node, Producer, Score, Tree, node_id


def step(kind: str, said: str, parent: str | None = None, /, **fields: Any) -> NewNode:
    """A draft with one token per character and a log-prob per token."""
    given = {
        "kind": kind,
        "text": said,
        "tokens": np.array([ord(c) for c in said], dtype=np.int32),
        "offsets": np.arange(1, len(said) + 1, dtype=np.int32),
        "logprobs": -np.linspace(0.1, 1.0, len(said)).astype(np.float32),
    }
    return NewNode(parent=parent, **given | fields)


def seen(node: Node) -> dict[str, Any]:
    """A node's fields in a form that can be compared."""
    return {
        name: value.tobytes() if isinstance(value := getattr(node, name), np.ndarray) else value
        for name in Node.__dataclass_fields__
    }


def small(tree: Tree) -> tuple[Node, list[Node], Node]:
    """A task, four draws of an action, and a fork inside the first of them."""
    root = tree.append(step("task", "go home", extra={"world": "lock", "task": {"id": "t0"}}))[0]
    actions = tree.append([step("action", f"word{i}", root.id, key=f"d{i}", policy="p") for i in range(4)])
    fork = tree.append(step("action", "-again", actions[0].id, keep=3, key="f0", policy="p"))[0]
    return root, actions, fork


texts = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=8)
plain = st.dictionaries(
    st.sampled_from("abcd"), st.one_of(st.none(), st.booleans(), st.integers(-5, 5), texts), max_size=2
)
finite = st.floats(-30, 0, width=32)


@st.composite
def drafts(draw: st.DrawFn, parents: list[tuple[str, int | None]]) -> NewNode:
    """A random draft below one of ``parents`` (id, token count), or a root."""
    parent, keep = None, None
    if parents and draw(st.integers(0, 9)):
        parent, length = draw(st.sampled_from(parents))
        if length is not None and draw(st.booleans()):
            keep = draw(st.integers(0, length))
    text = draw(texts)
    count = draw(st.one_of(st.none(), st.just(len(text))))
    arrays: dict[str, Any] = {}
    if count is not None:
        arrays["tokens"] = np.array(
            draw(st.lists(st.integers(0, 2**31 - 1), min_size=count, max_size=count)), np.int32
        )
        arrays["offsets"] = np.arange(1, count + 1, dtype=np.int32)
        for name in ("logprobs", "logprobs_t1", "ref_logprobs", "entropy"):
            if draw(st.booleans()):
                values = st.lists(st.one_of(finite, st.just(-np.inf)), min_size=count, max_size=count)
                arrays[name] = np.array(draw(values), np.float32)
    kind = draw(st.sampled_from(["observation", "action", "verdict", "rewrite"])) if parent else "task"
    return NewNode(
        kind=kind,
        parent=parent,
        keep=keep,
        key=draw(st.one_of(st.none(), st.uuids().map(str))),
        text=text,
        message=draw(st.one_of(st.none(), plain)),
        state_key=draw(st.one_of(st.none(), texts)),
        snapshot=draw(st.one_of(st.none(), st.binary(max_size=6))),
        policy=draw(st.one_of(st.none(), texts)),
        settings=draw(st.one_of(st.none(), plain)),
        noise=draw(
            st.one_of(
                st.none(), st.builds(NoiseKey, st.integers(), st.integers(0, 2**64 - 1), st.integers(0, 9))
            )
        ),
        origin=draw(st.sampled_from([None, "real", "replayed", "simulated"])),
        finish=draw(st.sampled_from([None, "stop", "length", "error"])),
        cost=Cost(
            tokens_in=draw(st.one_of(st.none(), st.integers(0, 9))),
            seconds=draw(st.one_of(st.none(), st.just(0.5))),
        ),
        extra=draw(plain),
        **arrays,
    )


@st.composite
def trees(draw: st.DrawFn, size: int = 12) -> Tree:
    """A random tree in memory with producers, scores, forks, draws and perhaps a retirement."""
    tree = Tree.memory()
    nodes: list[Node] = []
    for _ in range(draw(st.integers(1, size))):
        known = [(n.id, None if n.tokens is None else n.length) for n in nodes]
        nodes += tree.append(draw(drafts(known)))
    producers = []
    for number in range(draw(st.integers(0, 4))):
        reads = draw(st.lists(st.sampled_from(producers), unique=True, max_size=2)) if producers else []
        producers.append(tree.add_producer(Producer(f"p{number}", config=draw(plain), reads=tuple(reads))))
    for node in nodes:
        if producers and draw(st.booleans()):
            whole = draw(st.one_of(st.floats(-5, 5), st.just(float("inf"))))
            value = np.arange(node.length, dtype=np.float64) if node.length and draw(st.booleans()) else whole
            tree.add_scores(
                [
                    Score(
                        node.id,
                        "v",
                        value,
                        draw(st.sampled_from(producers)),
                        draw(st.one_of(st.none(), texts)),
                    )
                ]
            )
    for number in range(draw(st.integers(0, 2))):
        node = draw(st.sampled_from(nodes))
        record = ForkRecord(
            f"f{number}",
            node.id,
            None,
            draw(st.one_of(st.none(), plain)),
            {"name": "p"},
            {},
            None,
            3,
            2**64 - 1,
        )
        tree.begin_fork(record)
        tree.finish_draws(
            [DrawRecord(record.id, d, draw(st.sampled_from(nodes)).id, "done") for d in range(3)]
        )
    if producers and draw(st.booleans()):
        tree.retire(draw(st.sampled_from(producers)), "because")
    return tree


VERSION_1 = """
CREATE TABLE meta ("key" TEXT PRIMARY KEY, "value" TEXT NOT NULL);
CREATE TABLE blobs ("row" INTEGER PRIMARY KEY, "digest" BLOB NOT NULL UNIQUE, "data" BLOB NOT NULL);
CREATE TABLE nodes ("row" INTEGER PRIMARY KEY, "id" BLOB NOT NULL UNIQUE,
    "parent" INTEGER REFERENCES nodes(row), "keep" INTEGER, "kind" TEXT NOT NULL, "key" TEXT NOT NULL,
    "depth" INTEGER NOT NULL, "text" TEXT NOT NULL, "tokens" BLOB, "offsets" BLOB, "logprobs" BLOB,
    "logprobs_t1" BLOB, "ref_logprobs" BLOB, "entropy" BLOB, "message" TEXT, "state_key" TEXT,
    "snapshot" BLOB REFERENCES blobs(digest), "policy" TEXT, "weights" TEXT, "settings" TEXT, "noise" TEXT,
    "fork" TEXT, "origin" TEXT, "finish" TEXT, "error" TEXT, "cost" TEXT, "created" REAL NOT NULL,
    "extra" TEXT);
CREATE TABLE producers ("row" INTEGER PRIMARY KEY, "id" TEXT NOT NULL UNIQUE, "name" TEXT NOT NULL,
    "version" TEXT NOT NULL, "config" TEXT NOT NULL, "reads" TEXT NOT NULL, "retired_at" REAL, "reason" TEXT);
CREATE TABLE scores ("row" INTEGER PRIMARY KEY, "node" INTEGER NOT NULL REFERENCES nodes(row),
    "name" TEXT NOT NULL, "producer" INTEGER NOT NULL REFERENCES producers(row), "value" REAL, "array" BLOB,
    UNIQUE (node, name, producer));
CREATE TABLE forks ("row" INTEGER PRIMARY KEY, "id" TEXT NOT NULL UNIQUE,
    "node" INTEGER NOT NULL REFERENCES nodes(row), "token" INTEGER, "change" TEXT, "policy" TEXT NOT NULL,
    "settings" TEXT NOT NULL, "world" TEXT, "seed" TEXT NOT NULL, "stream" TEXT NOT NULL,
    "extra" TEXT NOT NULL);
CREATE TABLE draws ("row" INTEGER PRIMARY KEY, "fork" INTEGER NOT NULL REFERENCES forks(row),
    "draw" INTEGER NOT NULL, "leaf" INTEGER NOT NULL REFERENCES nodes(row), "end" TEXT NOT NULL, "error" TEXT,
    UNIQUE (fork, draw));
CREATE INDEX nodes_parent ON nodes(parent);
CREATE INDEX forks_node ON forks(node);
PRAGMA application_id = 1380795993;
PRAGMA user_version = 1;
"""


def version_1(path: Any) -> str:
    """Write a tree file of schema version 1, whose scores had no reasons; the id of its only node."""
    id_ = node_id(None, None, "task", "#0")
    judge = Producer("judge")
    with sqlite3.connect(path) as file:
        file.executescript(VERSION_1)
        file.execute("PRAGMA journal_mode = WAL")
        file.execute(
            "INSERT INTO nodes (row, id, kind, key, depth, text, created) "
            "VALUES (1, ?, 'task', '#0', 0, 'old', 7.0)",
            (bytes.fromhex(id_),),
        )
        file.execute("INSERT INTO producers VALUES (1, ?, 'judge', '1', '{}', '[]', NULL, NULL)", (judge.id,))
        file.execute("INSERT INTO scores VALUES (1, 1, 'success', 1, 1.0, NULL)")
    file.close()
    return id_
