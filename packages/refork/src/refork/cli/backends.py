"""``--backend``: who does the draws of a command."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from refork.forking.backend import Backend
    from refork.policies.base import Policy
    from refork.progress import Progress

BackendSpec = Annotated[
    str | None,
    typer.Option(
        "--backend", help="Who draws: serial, processes:N or ray[://HOST:PORT]; default: this process."
    ),
]


@contextmanager
def backend_for(spec: str | None) -> Iterator[Backend | None]:
    """The backend that a command names, closed at the end; None where it names none."""
    if spec is None:
        yield None
        return
    from refork.forking.backend import open_backend

    with open_backend(spec) as backend:
        yield backend


def policies_for(live: Progress, backend: Backend | None) -> Callable[[str], Policy]:
    """What opens policies by name, so that a backend's workers can open them too."""
    from refork.cli.common import policy_for
    from refork.policies.open import spell

    def opened(spec: str) -> Policy:
        name = spell(spec, live)
        policy = policy_for(name, live)
        if backend is not None:
            backend.know(policy, name)
        return policy

    return opened
