"""A page as text: Chromium's accessibility tree, one line for each node that says something.

A line is ``3 button name save``: a reference number where something can be done with the node, its role,
its name, its value and its states. References count such nodes in the order of the page, so that they are
the same whenever the page is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

from refork.types import Json
from refork_worlds.screens.elements import word

#: Roles that something can be done with.
CLICKABLE: Final = frozenset(
    {"button", "link", "checkbox", "radio", "tab", "menuitem", "switch", "textbox", "searchbox", "combobox"}
    | {
        "listbox",
        "spinbutton",
        "slider",
        "menuitemcheckbox",
        "menuitemradio",
        "option",
        "treeitem",
        "DisclosureTriangle",
    }
)
#: Roles whose name repeats what their children say, or that carry nothing of their own.
_SILENT: Final = frozenset(
    {"RootWebArea", "none", "generic", "InlineTextBox", "LineBreak", "ListMarker", "list", "listitem"}
    | {"form", "main", "navigation", "paragraph", "Section", "MenuListPopup", "tablist", "rowgroup", "Iframe"}
    | {
        "LayoutTableRow",
        "LayoutTable",
        "LayoutTableCell",
        "group",
        "region",
        "banner",
        "contentinfo",
        "article",
    }
)
#: States worth a word, with the values that are not.
_STATES: Final = ("checked", "selected", "expanded", "disabled", "pressed", "required", "readonly")


@final
@dataclass(frozen=True, slots=True)
class Node:
    """One line of a page; ``ref`` numbers what can be acted on, ``backend`` is Chromium's id."""

    role: str
    name: str
    value: str = ""
    states: tuple[str, ...] = ()
    ref: int | None = None
    backend: int | None = None
    choices: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """``3 textbox name words value milk``."""
        parts = [] if self.ref is None else [str(self.ref)]
        parts.append(self.role)
        for key, text in (("name", self.name), ("value", self.value)):
            if text and self.role == "text":
                parts.append(word(text))
            elif text:
                parts += [key, word(text)]
        if self.choices:
            parts += ["of", *map(word, self.choices)]
        return " ".join((*parts, *self.states))


def nodes(tree: Sequence[Mapping[str, Any]]) -> tuple[Node, ...]:
    """The lines of a full accessibility tree (``Accessibility.getFullAXTree``), in the order of the page."""
    known = {str(node["nodeId"]): node for node in tree}
    roots = [node for node in tree if node.get("parentId") not in known]
    found: list[Node] = []
    for node in roots:
        for role, name, raw in _walk(node, known):
            ref = sum(one.ref is not None for one in found) + 1 if role in CLICKABLE else None
            value = "" if role in ("link", "button") else _text(raw.get("value"))
            choices = tuple(_options(raw, known)) if role in ("combobox", "listbox") else ()
            found.append(Node(role, name, value, _states(raw), ref, raw.get("backendDOMNodeId"), choices))
    return tuple(found)


def _walk(node: Mapping[str, Any], known: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, str, Json]]:
    role, name = _text(node.get("role")), " ".join(_text(node.get("name")).split())
    inside = True
    if role == "LabelText":
        # What labels a control is the control's name; only the control inside is a line.
        yield from _controls(node, known)
        return
    if not node.get("ignored") and role not in _SILENT:
        spoken = role in CLICKABLE or role in (
            "heading",
            "cell",
            "columnheader",
            "rowheader",
            "img",
            "alert",
            "status",
        )
        if role == "StaticText":
            role, inside = "text", False
        if name or role in CLICKABLE:
            yield role, name, dict(node)
        # The children of a control or heading only spell its name.
        inside = inside and (not spoken or role in ("alert", "status", "cell"))
        if role in ("cell", "alert", "status") and name:
            inside = any(
                _text(known[c].get("role")) in CLICKABLE for c in node.get("childIds", ()) if c in known
            )
    if inside:
        for child in node.get("childIds", ()):
            if child in known:
                yield from _walk(known[child], known)


def _controls(
    node: Mapping[str, Any], known: Mapping[str, Mapping[str, Any]]
) -> Iterator[tuple[str, str, Json]]:
    for child in node.get("childIds", ()):
        if child in known and _text(known[child].get("role")) != "StaticText":
            yield from _walk(known[child], known)


def _options(node: Mapping[str, Any], known: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    for child in node.get("childIds", ()):
        if child in known:
            if _text(known[child].get("role")) == "option":
                yield _text(known[child].get("name"))
            else:
                yield from _options(known[child], known)


def _states(node: Mapping[str, Any]) -> tuple[str, ...]:
    given = {one["name"]: one.get("value", {}).get("value") for one in node.get("properties", ())}
    found = []
    for name in _STATES:
        value = given.get(name)
        if value in (True, "true"):
            found.append(name)
        elif value == "mixed":
            found.append(f"{name}-mixed")
    return tuple(found)


def _text(value: Any) -> str:
    return str(value.get("value", "")) if isinstance(value, Mapping) else ""


def text_of(title: str, result: Sequence[Node]) -> str:
    """The page as text: its title, then its lines."""
    return "\n".join([f"page {title}".rstrip(), *(node.line for node in result)])
