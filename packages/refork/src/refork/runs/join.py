"""A worker process is watched as part of the run that it works for."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from refork.errors import UserError
from refork.runs import sections
from refork.runs.attach import Attachment, Named
from refork.runs.otel import Telemetry, exporters, open_telemetry
from refork.runs.profile import Profile, write_json
from refork.runs.sections import SectionStack, Watcher

#: The variable that tells workers the folder for their part of a profile.
PARTS: Final = "REFORK_PROFILE_PARTS"
#: Stretches that a worker keeps for it.
_MOST: Final = 500


@dataclass(slots=True)
class _Joined:
    """What a worker process does for the run that it works for."""

    telemetry: Telemetry | None
    profile: Profile | None
    parts: Path | None
    cost: float = 0.0
    last: float = field(default_factory=time.monotonic)

    def unit(self) -> None:
        """Hand over what is known, for this process may be killed between two units."""
        if self.telemetry is not None:
            self.telemetry.flush()
        begun = time.monotonic()
        # The file grows with the run: at most a tenth of the time is to go into writing it.
        if self.profile is None or self.parts is None or begun - self.last < 10 * self.cost:
            return
        write_json(self.parts / f"{os.getpid()}.json", self.profile.to_json())
        self.last = time.monotonic()
        self.cost = self.last - begun


_joined: _Joined | None = None


def join() -> None:
    """In a worker process: watch its units as part of the run that began it, if that one is watched."""
    global _joined  # noqa: PLW0603
    folder = os.environ.get(PARTS)
    if _joined is not None or not (folder or telemetry_asked()):
        return
    try:
        telemetry = open_telemetry()
    except UserError:  # the run has said so
        telemetry = None
    timing = Profile(time.perf_counter_ns(), time.time(), _MOST) if folder else None
    watchers: list[Watcher] = [one for one in (telemetry, timing) if one is not None]
    if not watchers:
        return
    from refork.runs.seams import watch_all

    made = _joined = _Joined(telemetry, timing, Path(folder) if folder else None)
    content = telemetry is not None and telemetry.content
    sections.keep(SectionStack(watchers, content=content))
    watch_all()
    unit: Named = {"refork.forking.backend.worker": {"Worker": {"run": _unit(made)}}}
    Attachment(unit).attach()


def leave() -> None:
    """In a worker process that was told to end: send what a slow collector has not been sent yet."""
    if _joined is not None and _joined.telemetry is not None:
        _joined.telemetry.close()


def telemetry_asked() -> bool:
    """Whether the environment asks for traces or metrics, of this process and of its workers."""
    return bool(exporters("traces", os.environ) or exporters("metrics", os.environ))


def _unit(joined: _Joined) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def wrap(method: Callable[..., Any]) -> Callable[..., Any]:
        def run(self: Any, text: str) -> Any:
            keeper = sections.recorder()
            if keeper is None:
                return method(self, text)
            draws = len(json.loads(text)["draws"])
            with keeper.section("unit", "unit", **{"refork.draws": draws}):
                answer = method(self, text)
            joined.unit()
            return answer

        return run

    return wrap
