"""The pool file: workers, their prices and who has opted out, as TOML."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path

from refork.errors import BadInput
from refork.policies.base import Policy, Sampling
from refork.policies.open import open_policy
from refork.types import Json
from refork_methods.route.pool import Price, Worker, WorkerPool


def read_pool(
    path: Path, opener: Callable[..., Policy] = open_policy, *, names_only: bool = False
) -> WorkerPool:
    """The pool of a TOML file.

    Such a file reads::

        opted_out = ["large"]

        [[worker]]
        name = "small"
        policy = "openai:http://localhost:8000/v1#small"
        price = { million_in = 0.1, million_out = 0.4, call = 0 }
        settings = { temperature = 0.2, max_tokens = 512 }

    A price that is left out is unknown; write 0 where something is free. Opted-out workers are not opened,
    and with ``names_only`` none is.

    Raises: BadInput for what is no such file, and as :class:`WorkerPool`; the opener's own errors.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"cannot be read: {error}", where=str(path)) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"this is not TOML: {error}", where=str(path)) from error
    _only(data, {"worker", "opted_out"}, str(path))
    listed, out = data.get("worker", []), data.get("opted_out", [])
    if (
        not isinstance(listed, list)
        or not isinstance(out, list)
        or not all(isinstance(w, dict) for w in listed)
    ):
        raise BadInput("write [[worker]] tables, and opted_out as a list of names", where=str(path))
    plain = [_worker(body, f"{path}: worker {number}") for number, body in enumerate(listed, 1)]
    pool = WorkerPool(tuple(plain), frozenset(str(name) for name in out))
    if names_only:
        return pool
    opened = [
        Worker(w.name, opener(w.spec), None, w.price, w.spec, w.settings)
        if w.spec is not None and w.name not in pool.opted_out
        else w
        for w in plain
    ]
    return WorkerPool(tuple(opened), pool.opted_out)


def _worker(body: Json, where: str) -> Worker:
    _only(body, {"name", "policy", "price", "settings"}, where)
    name, spec, price = body.get("name"), body.get("policy"), body.get("price")
    if not isinstance(name, str) or not (spec is None or isinstance(spec, str)):
        raise BadInput("a worker has a name and a policy, both texts", where=where)
    if price is not None:
        if not isinstance(price, dict):
            raise BadInput(
                "price is a table: { million_in = ..., million_out = ..., call = ... }", where=where
            )
        _only(price, {"million_in", "million_out", "call"}, where)
        if any(isinstance(v, bool) or not isinstance(v, int | float) for v in price.values()):
            raise BadInput("prices are numbers", where=where)
    settings = body.get("settings")
    law = None if settings is None else Sampling.from_json(settings)
    return Worker(name, None, None, None if price is None else Price(**price), spec, law)


def _only(body: Json, known: set[str], where: str) -> None:
    unknown = sorted(set(body) - known)
    if unknown:
        raise BadInput(f"unknown key {unknown[0]!r}", where=where, hint=f"known: {', '.join(sorted(known))}")
