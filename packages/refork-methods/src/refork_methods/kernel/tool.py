"""Micro-profiling tools: functions from measurements to a finding, and which of them run.

Source: arXiv 2606.26453. A model does not choose tools: all that fit a kernel's class run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias, final

from refork.errors import BadInput
from refork_methods.kernel.finding import Category, Finding, by_severity
from refork_methods.kernel.roofline import Bound, Classified
from refork_methods.kernel.signals import Signals, Source
from refork_methods.kernel.slip import Slip

#: A finding where the measurements show one; None where they do not, or are not there.
Check: TypeAlias = Callable[[Signals], Finding | None]

ALL: frozenset[Bound] = frozenset(("compute", "memory", "latency", "mixed"))


@final
@dataclass(frozen=True, slots=True)
class MicroTool:
    """A named check. ``sources`` it reads, and the classes of kernels (``bounds``) that it is for."""

    name: str
    sources: tuple[Source, ...]
    category: Category
    bounds: frozenset[Bound]
    check: Check


_REGISTERED: dict[str, MicroTool] = {}


def micro_tool(
    *, source: Source | tuple[Source, ...], category: Category, bounds: Iterable[Bound] = ALL, name: str = ""
) -> Callable[[Check], Check]:
    """Register a check under its function's name in CamelCase, or under ``name``.

    A kernel whose class is not among ``bounds`` is not asked; ``mixed`` ones always are.

    Raises:
        BadInput: another tool has this name.
    """
    sources = (source,) if isinstance(source, str) else tuple(source)

    def register(check: Check) -> Check:
        called = name or "".join(part.capitalize() for part in check.__name__.split("_"))
        known = _REGISTERED.get(called)
        if known is not None and known.check.__module__ != check.__module__:
            raise BadInput(f"there is a tool {called} already", where=check.__module__, hint="give it a name")
        _REGISTERED[called] = MicroTool(called, sources, category, frozenset(bounds) | {"mixed"}, check)
        return check

    return register


def registered() -> Mapping[str, MicroTool]:
    """All tools that were registered so far, by name."""
    return dict(_REGISTERED)


@final
@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What was found, gravest first; which tools ran; which had nothing to read (name -> why).

    ``slips``: tools that broke.
    """

    classified: Classified
    findings: tuple[Finding, ...]
    ran: tuple[str, ...]
    blind: dict[str, str]
    slips: tuple[Slip, ...] = ()


def run_tools(tools: Iterable[MicroTool], signals: Signals, classified: Classified) -> Diagnosis:
    """All tools for this class of kernel on its measurements; one that has none of its sources is blind.

    A tool that raises has found nothing and is among the slips; the others are asked all the same.
    """
    findings: list[Finding] = []
    ran: list[str] = []
    blind: dict[str, str] = {}
    slips: list[Slip] = []
    for tool in sorted(tools, key=lambda one: one.name):
        if classified.bound not in tool.bounds:
            continue
        if not any(signals.has(source) for source in tool.sources):
            blind[tool.name] = "; ".join(
                f"{one}: {signals.absent.get(one, 'not measured')}" for one in tool.sources
            )
            continue
        try:
            found = tool.check(signals)
        except Exception as error:
            slips.append(Slip.of(f"tool {tool.name}", error))
            continue
        ran.append(tool.name)
        if found is not None:
            findings.append(found)
    return Diagnosis(classified, tuple(by_severity(findings)), tuple(ran), blind, tuple(slips))
