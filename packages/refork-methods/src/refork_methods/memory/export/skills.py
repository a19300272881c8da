"""Tools and lessons as skill folders: ``SKILL.md`` with a name and a description, and files beside it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import yaml

from refork.errors import BadInput
from refork_methods.memory.export.package import describe, one_line, write_files
from refork_methods.memory.item import MemoryItem
from refork_methods.memory.registry import ToolRegistry
from refork_methods.memory.secrets import refuse_secrets
from refork_methods.memory.tool import Tool

#: What the format allows (agentskills.io): lengths in characters.
LONGEST_NAME, LONGEST_DESCRIPTION = 64, 1024
#: The skill that holds facts and pitfalls.
NOTES = "environment-notes"


def export_skills(
    registry: ToolRegistry,
    folder: str | Path,
    *,
    items: Iterable[MemoryItem] = (),
    allow_secrets: bool = False,
) -> list[Path]:
    """Write a skill per tool and per valid plan, and one for all valid facts and pitfalls; the paths written.

    Raises:
        BadInput: nothing to export, or a folder that is not empty.
        CannotDo: something looks like a secret, unless ``allow_secrets``.
    """
    valid = [item for item in items if item.valid]
    if not allow_secrets:
        refuse_secrets(registry.tools, valid)
    taken: set[str] = {NOTES}
    files: dict[str, str] = {}
    for tool in registry.tools:
        files |= _tool(tool, registry, skill_name(tool.name, taken))
    for item in valid:
        if item.kind == "plan":
            files |= _plan(item, skill_name(f"plan {item.body}", taken))
    files |= _notes([item for item in valid if item.kind != "plan"])
    if not files:
        raise BadInput("there is nothing to export: no tool and no valid item")
    return write_files(folder, files)


def skill_name(text: str, taken: set[str]) -> str:
    """A name that the format allows, unlike the ``taken`` ones, to which it is added."""
    words = re.findall(r"[a-z0-9]+", text.lower())
    stem = ""
    for word in words:
        # Four characters stay free for the number of a name that is taken.
        if len(stem) + 1 + len(word) > LONGEST_NAME - 4:
            break
        stem = f"{stem}-{word}" if stem else word
    stem = stem or "skill"
    name, number = stem, 1
    while name in taken:
        number += 1
        name = f"{stem}-{number}"
    taken.add(name)
    return name


def head(name: str, description: str, **metadata: str) -> str:
    """The front matter of a ``SKILL.md``."""
    told = one_line(description)
    if len(told) > LONGEST_DESCRIPTION:
        told = told[: LONGEST_DESCRIPTION - 3].rstrip() + "..."
    fields: dict[str, object] = {"name": name, "description": told}
    if metadata:
        fields["metadata"] = metadata
    return f"---\n{yaml.safe_dump(fields, sort_keys=False, allow_unicode=True, width=100)}---\n"


def _tool(tool: Tool, registry: ToolRegistry, name: str) -> dict[str, str]:
    queries = [f"- {one_line(query)}" for query in tool.queries]
    example = f" Use it for tasks such as: {one_line(tool.queries[0])}" if tool.queries else ""
    lines = [
        head(name, one_line(tool.doc) + example, plan=tool.plan, digest=tool.digest),
        f"# {tool.name}", "", one_line(tool.doc), "", "## When to use it", "",
        "For tasks like those that it was built from:", "", *queries, "", "## Call", "",
        f"`scripts/{tool.name}.py` defines `{tool.name}(apis, tools, *, ...)`. `apis.<app>.<function>(...)`",
        "is the environment; `tools.<name>(keyword=...)` are the tools of the other skills.", "",
        *describe(tool, registry),
        "Look at what it gives back before going on: it was checked to load and to fit the environment's",
        "functions, not to be right. Where it fails, do the steps by hand.", "",
    ]  # fmt: skip
    return {
        f"{name}/SKILL.md": "\n".join(lines),
        f"{name}/scripts/{tool.name}.py": tool.source,
        f"{name}/scripts/parameters.json": json.dumps(tool.parameters, indent=1) + "\n",
    }


def _plan(item: MemoryItem, name: str) -> dict[str, str]:
    source = [f"Learned from the task: {one_line(item.query)}", ""] if item.query else []
    tools = [f"Tools that help: {', '.join(item.refs)}.", ""] if item.refs else []
    example = f" Use it for tasks such as: {one_line(item.query)}" if item.query else ""
    lines = [head(name, item.body.strip().splitlines()[0] + example, item=item.id)]
    lines += ["# Plan", "", item.body.strip(), "", *source, *tools]
    return {f"{name}/SKILL.md": "\n".join(lines)}


def _notes(items: Sequence[MemoryItem]) -> dict[str, str]:
    if not items:
        return {}
    lines = [
        head(
            NOTES,
            "What holds in this environment, and mistakes made in it. Use it before and in any task here.",
        )
    ]
    for kind, title in (("fact", "# Facts"), ("pitfall", "# Pitfalls")):
        told = [f"- {one_line(item.body)}" for item in items if item.kind == kind]
        if told:
            lines += [title, "", *told, ""]
    return {f"{NOTES}/SKILL.md": "\n".join(lines)}
