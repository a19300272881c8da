"""What a report says in sentences: the headline, what stands behind the number, how to do it again."""

from __future__ import annotations

import shlex

from refork.report.words import (
    DASH,
    counted,
    digits,
    flat,
    per_second,
    scientific,
    short_time,
    times,
    times_span,
)
from refork.report.words import rate as percent
from refork_methods.kernel.report.figures import Figures, RoofPosition, Timing
from refork_methods.kernel.report.folder import Search
from refork_methods.kernel.search.model import KernelSearchSettings

#: Options of a command that are shown whatever their value.
_ALWAYS = ("evaluations", "seed")
#: How kernels end that fail.
_ENDED = {
    "build": "at the build",
    "run": "when run",
    "check": "with a wrong result",
    "cheat": "as cheats",
    "done": "in another way",
}


def headline(report: Figures) -> str:
    """What the search came to."""
    if not report.tried:
        return f"{report.name}: nothing was tried yet"
    if report.best is None:
        return f"{report.name}: no kernel passed"
    if report.timing is None or report.timing.speedup is None:
        return f"{report.name}: nothing was timed"
    if len(report.path) == 1:
        return f"{report.name}: no kernel beat the original"
    if report.timing.beyond_noise is False:
        return f"{report.name}: no proven gain over the original"
    return f"{report.name} runs {times(report.timing.speedup)} as fast".replace("×", " times")


def standing(report: Figures) -> str:
    """What the number rests on: the duel or the search, interval and noise."""
    timing = report.timing
    if timing is None or timing.speedup is None:
        return ""
    if timing.duel:
        first = f"In the last duel, {counted(timing.samples, 'timing')} of each in turns"
    else:
        first = (
            "This is the search's own timing: the luckiest of many is taken, so the true gain may be smaller"
        )
    interval = "" if timing.low is None else f" The 95 % interval is {times_span(timing.low, timing.high)}."
    return f"{first}.{interval}{_beyond(timing)}"


def _beyond(timing: Timing) -> str:
    if timing.beyond_noise is None:
        return " Whether this is more than noise is not known: no interval, or no calibration."
    if timing.beyond_noise:
        return " That is beyond chance, and beyond what equal programs differ by on this machine."
    return " That is within chance, or within what equal programs differ by: no proven gain."


def tried(report: Figures) -> str:
    """How many kernels were tried, and how they ended."""
    if not report.tried:
        return f"No kernel was tried beside the original.{_state(report)}"
    failed = [f"{number} {how}" for stage, how in _ENDED.items() if (number := report.failed.get(stage))]
    rest = f" ({', '.join(failed)})" if failed else ""
    ended = f"{report.right:,} right, {report.tried - report.right:,} failed{rest}"
    return f"{counted(report.tried, 'kernel')} tried beside the original: {ended}.{_state(report)}"


def _state(report: Figures) -> str:
    if report.state in ("running", "stopped"):
        return " The search has not ended: its command goes on with it."
    return ""


def rate(where: RoofPosition | None, search: Search) -> str:
    """What a kernel does a second: useful flop where it has any, else compulsory bytes; a dash for None."""
    if where is None:
        return DASH
    flops = search.work is not None and search.work.flops > 0
    return per_second(where.flops, "flop") if flops else per_second(where.bandwidth, "B")


def timing_rows(search: Search, report: Figures) -> list[tuple[str, str, str]]:
    """The table of times: what, the original, the best."""
    if not search.nodes:
        return []
    first, timing = search.nodes[0].evaluated, report.timing
    rows = [
        ("seconds of a call", short_time(first.seconds), short_time(timing.seconds if timing else None)),
        ("speed-up over the reference", times(first.speedup), times(timing.speedup if timing else None)),
        (
            "its interval",
            times_span(first.low, first.high),
            times_span(timing.low, timing.high) if timing else times_span(None, None),
        ),
        ("timings", str(len(first.samples)), str(timing.samples) if timing else DASH),
        (
            "worst relative error",
            scientific(first.error),
            scientific(timing.error if timing else None),
        ),
    ]
    if search.work is not None:
        rows.append(("useful work a second", rate(report.original, search), rate(report.reached, search)))
        rows.append(("share of the roof", _roof_share(report.original), _roof_share(report.reached)))
    return rows


def _roof_share(where: RoofPosition | None) -> str:
    return DASH if where is None else percent(where.roof_share)


def no_roofline(search: Search, report: Figures) -> str:
    """Why there is no roofline picture; empty where there is one."""
    if report.best is None and not any(node.evaluated.ok for node in search.nodes):
        return "No kernel is right, so none has a place under the roof."
    if search.ceilings is None:
        return "The machine was not calibrated: `refork kernel calibrate`, then search again."
    if search.work is None:
        return "The useful work of a call is not declared: give the problem its flops and bytes."
    if not search.work.flops:
        return "No floating-point work is declared: the roof is the memory's speed alone."
    return ""


def roof_words(search: Search, report: Figures) -> str:
    """Where the original stood and where the best stands."""
    if report.original is None or report.reached is None or search.work is None:
        return ""
    ends = f"From {rate(report.original, search)} to {rate(report.reached, search)}"
    if search.ceilings is None:
        return f"{ends}."
    ends = f"{ends}, from {_roof_share(report.original)} of the roof to {_roof_share(report.reached)}."
    if not search.work.flops:
        return ends
    side = "memory" if search.work.intensity < search.ceilings.ridge else "compute"
    return (
        f"{ends} At {digits(search.work.intensity)} flop per byte the {side} ceiling is the one that counts."
    )


def problem(search: Search) -> dict[str, str]:
    """Facts of the kernel."""
    return flat({key: value for key, value in search.problem.items() if key not in ("suffix", "digest")})


def machine(search: Search) -> dict[str, str]:
    """Facts of the machine: ceilings first."""
    found: dict[str, str] = {}
    if search.ceilings is not None:
        found["compute ceiling"] = per_second(search.ceilings.flops, "flop")
        found["memory ceiling"] = per_second(search.ceilings.bandwidth, "B")
        found["noise of equal programs"] = f"±{100 * (search.ceilings.noise - 1):.1f} %"
    return found | flat(search.machine)


def commands(search: Search) -> list[str]:
    """The commands that make this search and this report again."""
    folder, problem, settings = search.folder.resolve().name, search.problem, search.settings
    parts = ["refork", "kernel", "search", f"{problem.get('name')}{problem.get('suffix', '')}"]
    parts += ["--entry", str(problem["entry"])] if problem.get("entry") else []
    for name, value in (problem.get("sizes") or {}).items():
        parts += ["--set", f"{name}={value}"]
    usual = KernelSearchSettings().to_json()
    for name in ("evaluations", "seed", "search", "feedback", "batch", "unguided"):
        report = settings.get(name, usual[name])
        parts += [f"--{name}", str(report)] if name in _ALWAYS or report != usual[name] else []
    writer = str(search.facts.get("writer"))
    # Of the writer without a model the record's name also holds its settings.
    parts += [] if writer.startswith("rewrite") else ["--writer", writer]
    parts += ["--out", folder]
    return [shlex.join(parts), shlex.join(["refork", "kernel", "report", folder])]
