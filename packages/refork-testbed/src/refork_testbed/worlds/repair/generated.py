"""Generated projects: packages of 8 to 19 modules in one trade's words, which import one another."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import final

from refork.worlds.dice import Dice
from refork_testbed.worlds.repair.drawn import Draw
from refork_testbed.worlds.repair.package import Check
from refork_testbed.worlds.repair.templates import BLOCKS
from refork_testbed.worlds.repair.trades import Trade, trades

#: How many calls are drawn from each line of a block.
CALLS = 6
LEAST = 8
#: Folders of a package, in the order in which a project takes some.
_FOLDERS = ("core", "office", "shared", "daily", "planning", "common", "desk", "backstage")
_IMPORT = re.compile(r"^from @(\w+) import (.+)$", re.MULTILINE)
#: Blocks of the training half; the other projects are made of the rest, so that no function stands in both.
_FIRST_HALF = frozenset(
    [
        "averages",
        "spread",
        "grouping",
        "report",
        "tokens",
        "formula",
        "records",
        "settings",
        "histogram",
        "grid",
        "routes",
        "series",
        "slugs",
        "search",
        "templates",
        "runs",
        "stock",
        "clock",
        "permits",
    ]
)


@final
@dataclass(frozen=True, slots=True)
class Block:
    """One module template: file and function names to choose from, text, and calls with their meaning."""

    key: str
    files: tuple[str, ...]
    names: dict[str, tuple[str, ...]]
    text: str
    calls: tuple[tuple[str, str], ...]

    @property
    def needs(self) -> tuple[str, ...]:
        """Keys of the blocks it imports."""
        return tuple(found[0] for found in _IMPORT.findall(self.text))


@cache
def blocks() -> dict[str, Block]:
    """Every block by its key."""
    found = {}
    for group in BLOCKS:
        for part in group.strip().removeprefix("## ").split("\n## "):
            block = _block(part)
            found[block.key] = block
    return found


def _block(part: str) -> Block:
    head, _, rest = part.partition("\n")
    key, _, files = (one.strip() for one in head.partition("|"))
    text, _, calls = rest.partition("\n---\n")
    names: dict[str, tuple[str, ...]] = {}
    lines = text.split("\n")
    for line in lines:
        if line.startswith("# names: "):
            names.update({group.split("/")[0]: tuple(group.split("/")) for group in line[9:].split()})
    body = "\n".join(line for line in lines if not line.startswith("# names: "))
    pairs = [tuple(one.strip() for one in line.split(" ; ")) for line in calls.strip().split("\n")]
    return Block(key, tuple(files.split()), names, body, tuple((call, about) for call, about in pairs))


@cache
def generated(number: int) -> tuple[str, dict[str, str], tuple[Check, ...]]:
    """Name, files and checks (without answers) of generated project 0 to 19; even ones are the first half."""
    trade = trades()[number]
    dice = Dice("repair", "generated", number)
    chosen = _chosen(dice, number % 2 == 0)
    folders = _FOLDERS[: 3 + dice.below(3)]
    names = {name: dice.choice(others) for key in chosen for name, others in blocks()[key].names.items()}
    modules = {key: _place(trade, blocks()[key], folders, dice) for key in chosen}
    files = {f"{trade.name}/__init__.py": f'"""Software of a {trade.place} for its {trade.items}."""\n'}
    checks: list[Check] = []
    for key, module in modules.items():
        for depth in range(2, module.count(".") + 1):
            files.setdefault("/".join(module.split(".")[:depth]) + "/__init__.py", "")
        text = _imports(blocks()[key].text, module, modules, dice)
        files[module.replace(".", "/") + ".py"] = _renamed(trade.spoken(text), names) + "\n"
        checks += _checks(trade, blocks()[key], module, names, dice)
    return trade.name, dict(sorted(files.items())), tuple(checks)


def _chosen(dice: Dice, first: bool) -> list[str]:
    """Keys of a project's blocks, with all that they need."""
    pool = [key for key in blocks() if (key in _FIRST_HALF) == first]
    wanted = LEAST + dice.below(len(pool) - LEAST + 1)
    chosen: set[str] = set()
    for key in dice.sample(pool, len(pool)):
        if len(chosen) >= wanted:
            break
        waiting = [key]
        while waiting:
            one = waiting.pop()
            chosen.add(one)
            waiting += blocks()[one].needs
    return [key for key in blocks() if key in chosen]


def _place(trade: Trade, block: Block, folders: Sequence[str], dice: Dice) -> str:
    folder = dice.choice(["", *folders])
    return ".".join(part for part in (trade.name, folder, dice.choice(block.files)) if part)


def _imports(text: str, module: str, modules: dict[str, str], dice: Dice) -> str:
    """The text with its imports written out, relative or absolute by chance."""

    def written(found: re.Match[str]) -> str:
        target = modules[found[1]]
        if dice.uniform() < 0.5:
            return f"from {target} import {found[2]}"
        here, there = module.split(".")[:-1], target.split(".")
        same = 0
        while same < len(here) and here[same] == there[same]:
            same += 1
        return f"from {'.' * (len(here) - same + 1)}{'.'.join(there[same:])} import {found[2]}"

    return _IMPORT.sub(written, text)


def _renamed(text: str, names: dict[str, str]) -> str:
    return re.sub(r"\b[a-z]\w*\b", lambda found: names.get(found[0], found[0]), text)


def _checks(trade: Trade, block: Block, module: str, names: dict[str, str], dice: Dice) -> list[Check]:
    draw = Draw(dice, trade.goods, trade.places, trade.amount)
    found = []
    for call, about in block.calls:
        for _ in range(CALLS):
            name = call.partition("(")[0]
            said = names.get(name, name)
            filled = said + draw.filled(trade.spoken(call.removeprefix(name)))
            found.append(Check(module, said, (said,), filled, trade.spoken(about)))
    return found
