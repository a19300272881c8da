"""Pointers that are promised not to overlap."""

from __future__ import annotations

from dataclasses import replace

from refork_methods.kernel.rewrite.rule import Changed, Parameters, Rule, refuse
from refork_methods.kernel.rewrite.unit import Unit


def _make(unit: Unit, given: Parameters) -> Changed:
    arrays = [one for one in unit.parameters if one.dims is not None and one.spot >= 0]
    open_ones = [one for one in arrays if not one.restrict]
    if len(arrays) < 2 or not open_ones or all(one.const for one in arrays):
        raise refuse("no pointers that would gain by it")
    before = unit.before
    for one in sorted(open_ones, key=lambda each: -each.spot):
        following = before[one.spot : one.spot + 1]
        gap = "" if following in (" ", "]") else " "
        before = f"{before[: one.spot]}__restrict__{gap}{before[one.spot :]}"
    return Changed(replace(unit, before=before), assumes="arrays of a call do not overlap")


RULE = Rule("restrict", ("CpuScalarFallback", "StoreTraffic"), lambda unit: [{}], _make)
