"""OSWorld: the ``traj.jsonl`` of a run, alone or in folders, with the accessibility tree of each step.

A line is one action with its step number, the agent's response, reward, done and info. The released runner
writes screenshots only; trees are taken from the line (``accessibility_tree``, also under ``observation``),
or from a file beside the screenshot with the same name and ``.xml``. XML becomes one line an element, by
OSWorld's rule of which nodes count: visible controls with a name or text. The score is read from
``result.txt``.

Source: arXiv 2404.07972 and its released code (``lib_run_single.py``, ``heuristic_retrieve.py``).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, final
from xml.etree import ElementTree

from refork.errors import BadInput
from refork.formats.base import Head, shaped
from refork.formats.rows import objects
from refork.json_guard import document
from refork.tree.records import Position, Record, Remark
from refork.types import Json
from refork_worlds.formats.screen_trajectories import ScreenStep, drafts
from refork_worlds.screens.elements import Element, line

_TREES: Final = ("accessibility_tree", "a11y_tree")
_ENDINGS: Final = (
    *("item", "button", "heading", "label", "scrollbar", "searchbox", "textbox", "link", "tabelement"),
    *("textfield", "textarea", "menu"),
)
_TAGS: Final = frozenset(
    {
        "alert",
        "canvas",
        "check-box",
        "combo-box",
        "entry",
        "icon",
        "image",
        "paragraph",
        "scroll-bar",
        "section",
    }
    | {"slider", "static", "table-cell", "terminal", "text", "netuiribbontab", "start", "trayclockwclass"}
    | {"traydummysearchcontrol", "uiimage", "uiproperty", "uiribbonmenu"}
)
_ABLE: Final = ("enabled", "editable", "expandable", "checkable")
_STATES: Final = ("checked", "selected", "focused", "expanded", "editable")
_PAIR: Final = re.compile(r"\(?\s*(-?\d+)\s*,\s*(-?\d+)\s*\)?")
_HINT: Final = (
    'run with --observation_type a11y_tree and add "accessibility_tree": obs["accessibility_tree"] to '
    "the line that lib_run_single.py writes for each step, or save it as XML beside the step's screenshot"
)


@final
class OSWorld:
    """Reads the trajectories of OSWorld's runner."""

    name = "osworld"
    order = 96

    def sniff(self, head: Head) -> bool:
        """Whether the first line is a step."""
        body = head.first
        if body is None:
            # A tree makes a line longer than the sniffing window.
            first = head.text.lstrip().partition("\n")[0]
            return first.startswith("{") and '"step_num"' in first[:4096]
        return isinstance(body, dict) and {"step_num", "action"} <= set(body)

    def unit(self, folder: Path) -> Path | None:
        """The trajectory of an episode's folder; screens and results lie beside it."""
        file = folder / "traj.jsonl"
        return file if file.is_file() else None

    def read(self, path: Path) -> Iterator[Record]:
        """Drafts of a trajectory, given as its file or as its folder.

        Raises:
            BadInput: a line that is no step, or a step without its tree; it names the line.
        """
        file = self.unit(path) or path
        yield from shaped(_trajectory(file), str(file), "OSWorld")


def _steps(path: Path) -> Iterator[tuple[str, Json]]:
    """The lines of a trajectory; one that cannot be read is an error, for the steps after it belong to it."""
    for where, body in objects(path):
        if isinstance(body, Remark):
            raise BadInput(body.what, where=body.where)
        if not isinstance(body, Position):
            yield where, body


def _trajectory(path: Path) -> Iterator[Record]:
    steps = list(_steps(path))
    turns, bare = [], []
    for where, step in steps:
        if "action" not in step:
            if "Error" in step or "error" in step:
                continue  # what the runner writes when an episode breaks
            raise BadInput("a step has an action", where=where)
        raw = _tree(step, path.parent)
        if raw is None:
            bare.append(where)
        turns.append(
            ScreenStep(_action(step["action"]), str(step.get("response") or ""), raw and _text(raw, where))
        )
    if not turns:
        raise BadInput("there is no step in this trajectory", where=str(path))
    # After the last word nobody looks at the screen any more.
    last = len(turns) > 1 and turns[-1].screen is None
    if len(bare) > last:
        raise BadInput("this step has no accessibility tree", where=bare[0], hint=_HINT)
    # The tree of step 0 is the screen before any action.
    start = next(iter(sorted(path.parent.glob("step_0*.xml"))), None)
    yield from drafts(
        source="osworld",
        domain="desktop",
        goal=_instruction(path.parent, [step for _, step in steps]),
        first=_text(start.read_text(encoding="utf-8"), str(start)) if start else "",
        turns=turns,
        reward=_result(path.parent),
        more={"example": path.parent.name},
    )


def _action(raw: Any) -> str:
    return raw if isinstance(raw, str) else json.dumps(raw, ensure_ascii=False)


def _tree(step: Json, folder: Path) -> str | None:
    """The recorded tree of a step: in its line, in the observation of its line, or in a file."""
    for holder in (step, step.get("observation"), step.get("obs")):
        for name in _TREES:
            if isinstance(holder, dict) and isinstance(holder.get(name), str) and holder[name].strip():
                return str(holder[name])
    for name in ("accessibility_tree_file", "screenshot_file"):
        if isinstance(step.get(name), str):
            # Only a name is taken from the log: a path could lead anywhere.
            file = folder / Path(step[name]).with_suffix(".xml").name
            if file.is_file():
                return file.read_text(encoding="utf-8")
    return None


def _instruction(folder: Path, steps: list[Json]) -> str:
    """What was asked, where the log or a file beside it says so."""
    for step in steps[:1]:
        if isinstance(step.get("instruction"), str):
            return str(step["instruction"])
    for name in ("task.json", "example.json", "config.json", f"{folder.name}.json"):
        try:
            return str(document(folder / name)["instruction"])
        except (BadInput, KeyError, TypeError):
            continue
    file = folder / "instruction.txt"
    return file.read_text(encoding="utf-8").strip() if file.is_file() else ""


def _result(folder: Path) -> float | None:
    try:
        found = float((folder / "result.txt").read_text(encoding="utf-8").split()[0])
    except (OSError, ValueError, IndexError):
        return None
    return found if math.isfinite(found) else None


def _text(raw: str, where: str) -> str:
    """A tree as lines of elements; text that is no XML was linearised when it was recorded."""
    if not raw.lstrip().startswith("<"):
        return raw.strip()
    # Entities can make any amount of text out of a small file.
    if "<!DOCTYPE" in raw or "<!ENTITY" in raw:
        raise BadInput("the accessibility tree defines entities", where=where)
    try:
        root = ElementTree.fromstring(raw)
    except ElementTree.ParseError as error:
        raise BadInput(f"the accessibility tree is not XML: {error}", where=where) from error
    return "\n".join(line(one) for one in map(_element, root.iter()) if one is not None)


def _element(node: ElementTree.Element) -> Element | None:
    """An element, if it counts: shown, able to do something, with a name or text and a place."""
    tag = node.tag.rpartition("}")[2]
    if not (tag.startswith("document") or tag.endswith(_ENDINGS) or tag in _TAGS):
        return None
    # The namespaces of attributes changed between releases; their last parts did not.
    known = {key.rpartition("}")[2]: value for key, value in node.attrib.items()}
    shown = known.get("visible") == "true" and known.get("showing", "true") == "true"
    able = any(known.get(name) == "true" for name in _ABLE)
    name, text = known.get("name", "").strip(), (node.text or known.get("value") or "").strip()
    place, size = _PAIR.fullmatch(known.get("screencoord", "")), _PAIR.fullmatch(known.get("size", ""))
    if not (shown and able and (name or text) and place and size):
        return None
    x, y, width, height = int(place[1]), int(place[2]), int(size[1]), int(size[2])
    if x < 0 or y < 0 or width <= 0 or height <= 0:
        return None
    states = tuple(one for one in _STATES if known.get(one) == "true")
    return Element(tag, (("name", name), ("text", text)), states, (x + width // 2, y + height // 2))
