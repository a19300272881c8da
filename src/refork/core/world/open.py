"""Open a world by its specification."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from refork.core.errors import BadInput
from refork.core.types import Json
from refork.core.world.base import Task, World
from refork.core.world.spec import Spec

#: Specifications that open, with what they are.
KNOWN = {
    "maze:W,K,L": "path-star maze: W branches of K diamonds of L parallel edges (option cap)",
    "household:SIZE": "rooms, keys and objects, SIZE 1 to 6 (option slip)",
    "lock": "one action of 32 characters, four of which must be right",
    "refusal:P": "thinking, then refuse or comply: P, D or C (options early, steps, flip, commit, spread)",
    "toolcall:TOOLS": "call the one of TOOLS (2 to 8) listed tools that serves a request",
    "motive:SCENE": "a shortcut tempts: hook, email, tampering, sandbagging, number, board (with options)",
    "miniapps": "five apps and requests that need several calls in them (options shift, templates)",
    "specialists": "three questions of four domains for workers of planted skill (option alone)",
    "appworld:DATASET": "AppWorld's tasks, where its package and data are installed (option turns)",
    "repair": "mend one function of a small Python project by its tests (options turns, origin)",
    "house-rules:TASK": "a session under one of nine rules, then a request (turns, words, wording, channel)",
    "terminal": "requests in a real shell, in a folder of its own (options turns, chars)",
    "swe": "a git repository with a mistake, its tests, a real shell (options turns, chars)",
    "search:FOLDER": "a search engine over invented facts or FOLDER's texts (kinds, snippets, turns)",
    "tools:DATABASE": "typed tools over SQLite: library, shop or tickets (option brief)",
    "tools:mcp": "the tools of any MCP server (options command or url, goals, turns)",
    "web:SITE": "pages in headless Chromium as accessibility trees; SITE: a folder or an address (turns)",
    "phone": "a phone's screens as view hierarchies (option turns)",
    "desktop": "a desktop's windows as an accessibility tree (option turns)",
    "miniwob:TASK": "MiniWoB++'s pages in headless Chromium as element lists (turns, pace, boxes, html)",
    "verifiers:ENV-ID": "environments of the verifiers library (turns, seconds; its arguments as options)",
    "reasoning-gym:DATASET": "any reasoning-gym dataset (its settings as options; extract, after, compact)",
    "minigrid:ENV-ID": "any MiniGrid or BabyAI environment in words (its settings as options; turns, reward)",
    "textarena:GAME": "TextArena's games for one, or two against a scripted player (turns, opponent, seat)",
    "scienceworld:TASK": "ScienceWorld's experiments, on Java (turns, simplify, part)",
    "gymnasium:ENV-ID": "any Gymnasium environment with discrete or text spaces (its settings as options)",
}


def open_world(spec: str) -> World:
    """The world that a specification names: ``NAME[:ARGUMENT][?option=value&...]``.

    Examples: ``maze:3,3,3``, ``household:2?slip=0.1``, ``lock``, ``reasoning-gym:chain_sum?min_terms=2``,
    ``gymnasium:FrozenLake-v1?is_slippery=false``.

    Raises:
        BadInput: an unknown world, argument or option.
        MissingExtra: the package behind an adapter is not installed.
    """
    parsed = Spec.parse(spec)
    opener = _OPENERS.get(parsed.name)
    if opener is None:
        raise BadInput(f"unknown world {parsed.name!r}", hint="worlds: " + ", ".join(KNOWN))
    return opener(parsed)


def _maze(spec: Spec) -> World:
    from refork.core.world.maze import maze_world

    parts = spec.argument.split(",") if spec.argument else ["3", "3", "3"]
    if len(parts) != 3 or not all(part.strip().lstrip("-").isdigit() for part in parts):
        raise BadInput(f"{spec.argument!r} is not W,K,L", where="maze", hint="for example maze:3,3,3")
    return maze_world(*(int(part) for part in parts), **spec.take({"cap": int}))


def _household(spec: Spec) -> World:
    from refork.core.world.household import SIZES, household_world

    size = spec.argument or "2"
    if not size.isdigit():
        raise BadInput(f"{size!r} is not a size", where="household", hint=f"sizes: 1 to {max(SIZES)}")
    return household_world(int(size), **spec.take({"slip": (float, int)}))


def _lock(spec: Spec) -> World:
    from refork.core.world.lock import LockWorld

    if spec.argument:
        raise BadInput(f"lock takes no argument, not {spec.argument!r}", where="lock")
    spec.take({})
    return LockWorld()


def _toolcall(spec: Spec) -> World:
    from refork.core.world.toolcall import ToolCallWorld

    tools = spec.argument or "4"
    if not tools.isdigit():
        raise BadInput(f"{tools!r} is not a number of tools", where="toolcall", hint="for example toolcall:4")
    spec.take({})
    return ToolCallWorld(int(tools))


def _refusal(spec: Spec) -> World:
    from refork.core.world.refusal import refusal_world

    number = (float, int)
    options: dict[str, type | tuple[type, ...]] = {
        "early": number,
        "steps": int,
        "flip": number,
        "commit": int,
        "spread": number,
    }
    return refusal_world(spec.argument or "P", options=spec.query, **spec.take(options))


def _motive(spec: Spec) -> World:
    from refork.core.world.motives.environment import SETTINGS
    from refork.core.world.motives.world import motive_world

    return motive_world(spec.argument or "hook", spec.take(SETTINGS), spec.query)


def _miniapps(spec: Spec) -> World:
    from refork.core.world.miniapps.world import miniapps_world

    if spec.argument:
        raise BadInput(f"miniapps takes no argument, not {spec.argument!r}", where="miniapps")
    return miniapps_world(**spec.take({"shift": str, "templates": str}), options=spec.query)


def _specialists(spec: Spec) -> World:
    from refork.core.world.specialists import SpecialistsWorld

    if spec.argument:
        raise BadInput(f"specialists takes no argument, not {spec.argument!r}", where="specialists")
    return SpecialistsWorld(**spec.take({"alone": bool}))


def _repair(spec: Spec) -> World:
    from refork.core.world.repair.world import OPTIONS, repair_world

    if spec.argument:
        raise BadInput(f"repair takes no argument, not {spec.argument!r}", where="repair")
    return repair_world(**spec.take(OPTIONS), options=spec.query)


def _appworld(spec: Spec) -> World:
    from refork.core.world.adapters.appworld import appworld_world

    return appworld_world(spec)


def _house_rules(spec: Spec) -> World:
    from refork.core.world.house_rules.world import OPTIONS, house_rules_world

    return house_rules_world(spec.argument or None, spec.query, **spec.take(OPTIONS))


def _terminal(spec: Spec) -> World:
    from refork.core.world.terminal.world import terminal_world

    return terminal_world(spec)


def _swe(spec: Spec) -> World:
    from refork.core.world.swe.world import swe_world

    return swe_world(spec)


def _search(spec: Spec) -> World:
    from refork.core.world.search.world import search_world

    return search_world(spec)


def _tools(spec: Spec) -> World:
    from refork.core.world.tools.world import tools_world

    return tools_world(spec)


def _web(spec: Spec) -> World:
    from refork.core.world.web.world import web_world

    return web_world(spec)


def _phone(spec: Spec) -> World:
    from refork.core.world.screens.world import phone_world

    return phone_world(spec)


def _desktop(spec: Spec) -> World:
    from refork.core.world.screens.world import desktop_world

    return desktop_world(spec)


def _reasoning_gym(spec: Spec) -> World:
    from refork.core.world.adapters.reasoning_gym import reasoning_gym_world

    return reasoning_gym_world(spec)


def _miniwob(spec: Spec) -> World:
    from refork.core.world.adapters.miniwob import miniwob_world

    return miniwob_world(spec)


def _verifiers(spec: Spec) -> World:
    from refork.core.world.adapters.verifiers import verifiers_world

    return verifiers_world(spec)


def _minigrid(spec: Spec) -> World:
    from refork.core.world.adapters.minigrid import minigrid_world

    return minigrid_world(spec)


def _textarena(spec: Spec) -> World:
    from refork.core.world.adapters.textarena import textarena_world

    return textarena_world(spec)


def _scienceworld(spec: Spec) -> World:
    from refork.core.world.adapters.scienceworld import scienceworld_world

    return scienceworld_world(spec)


def _gymnasium(spec: Spec) -> World:
    from refork.core.world.adapters.gymnasium import gymnasium_world

    return gymnasium_world(spec)


_OPENERS: dict[str, Callable[[Spec], World]] = {
    "maze": _maze,
    "household": _household,
    "lock": _lock,
    "refusal": _refusal,
    "toolcall": _toolcall,
    "motive": _motive,
    "miniapps": _miniapps,
    "specialists": _specialists,
    "repair": _repair,
    "appworld": _appworld,
    "house-rules": _house_rules,
    "terminal": _terminal,
    "swe": _swe,
    "search": _search,
    "tools": _tools,
    "web": _web,
    "phone": _phone,
    "desktop": _desktop,
    "reasoning-gym": _reasoning_gym,
    "miniwob": _miniwob,
    "verifiers": _verifiers,
    "minigrid": _minigrid,
    "textarena": _textarena,
    "scienceworld": _scienceworld,
    "gymnasium": _gymnasium,
}


def task_to_json(task: Task) -> Json:
    """A task as plain JSON: id, world, split, prompt and data."""
    return {
        "id": task.id,
        "world": task.world,
        "split": task.split,
        "prompt": task.prompt,
        "data": task.data,
    }


def task_from_json(world: World, data: Any) -> Task:
    """Inverse of :func:`task_to_json`; the world must be able to start it.

    Raises:
        BadInput: keys are missing or unknown, or the task is not of this world.
    """
    keys = {"id", "world", "split", "prompt", "data"}
    if not isinstance(data, dict) or set(data) != keys:
        raise BadInput("a task has the keys id, world, split, prompt and data", where=f"world {world.name}")
    task = Task(**data)
    world.start(task, 0).close()
    return task
