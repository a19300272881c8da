"""What llvm-mca models of one loop: its cycles, its best throughput, and how busy the ports are."""

from __future__ import annotations

import re

from refork.errors import BadInput
from refork_methods.kernel.cpu import metrics as m

WHERE = "llvm-mca"
_NAMED = re.compile(r"^\[([\d.]+)\]\s+- (\S+)$")


def parse(text: str) -> tuple[dict[str, float], tuple[str, ...]]:
    """Metrics of a report with the resource pressure view, and its lines that are to be cited.

    Raises:
        BadInput: a report without cycles, iterations or throughput, or with a damaged pressure table.
    """
    iterations, total = _number(text, "Iterations"), _number(text, "Total Cycles")
    if not (iterations and total):
        raise BadInput("no iterations or no cycles", where=WHERE)
    cycles = total / iterations
    values = {
        m.LOOP_CYCLES.name: cycles,
        m.BLOCK_CYCLES.name: _number(text, "Block RThroughput"),
        m.IPC.name: _number(text, "IPC"),
    }
    lines = [line.strip() for line in text.splitlines()]
    cites = [
        line for line in lines if line.startswith(("Iterations:", "Total Cycles:", "Block RThroughput:"))
    ]
    busiest = _busiest(lines)
    if busiest is not None:
        port, pressure = busiest
        values[m.PORT_USE.name] = pressure / cycles
        cites.append(f"{port}: {pressure:g} of {cycles:g} cycles per iteration")
    return values, tuple(cites)


def _number(text: str, name: str) -> float:
    found = re.search(rf"^{name}:\s+(\d+(?:\.\d+)?)\s*$", text, re.MULTILINE)
    if found is None:
        raise BadInput(f"no {name}", where=WHERE, hint="the report of one code region is read")
    return float(found[1])


def _busiest(lines: list[str]) -> tuple[str, float] | None:
    """The most used port and its cycles per iteration; None without the view."""
    if "Resource pressure per iteration:" not in lines:
        return None
    names = {found[1]: found[2] for line in lines if (found := _NAMED.match(line))}
    at = lines.index("Resource pressure per iteration:")
    table = lines[at + 1 : at + 3]
    keys = re.findall(r"\[([\d.]+)\]", table[0]) if table else []
    cells = table[1].split() if len(table) == 2 else []
    if not keys or len(keys) != len(cells) or any(not re.fullmatch(r"-|\d+\.\d+", one) for one in cells):
        raise BadInput("a damaged table of port pressure", where=WHERE)
    pressure = {key: 0.0 if cell == "-" else float(cell) for key, cell in zip(keys, cells, strict=True)}
    key = max(pressure, key=lambda one: pressure[one])
    return names.get(key, f"port {key}"), pressure[key]
