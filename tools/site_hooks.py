"""What mkdocs does besides: figures of benchmarks in pages, and notebooks as pages. Named in mkdocs.yml.

``<!-- figures: cliff deletion_gain random_control -->`` in a page becomes a table of these figures as
they are stored in benchmarks/results, beside the paper's: a page cannot disagree with docs/results.md.
Without keys it is all of the benchmark's figures. ``<!-- names of refork -->`` becomes the reference of every
name that can be imported from ``refork`` itself. Every notebooks/NAME.ipynb becomes a page, and SECURITY.md.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import page_pictures  # noqa: E402
import results  # noqa: E402

MARKER = re.compile(r"<!-- figures: (\w+)((?: [\w.-]+)*) -->")
NAMES = "<!-- names of refork -->"
STUB = ROOT / "packages/refork/src/refork/__init__.pyi"


def figures_table(name: str, keys: list[str], up: str = "../") -> str:
    """A table of a benchmark's figures and where they come from; ``up`` leads to the root of the pages.

    Raises:
        ValueError: there is no such benchmark, or it claims no such figure.
    """
    entry = next((one for one in results.REGISTRY if one.name == name), None)
    if entry is None:
        raise ValueError(f"no benchmark {name!r} in benchmarks/claims")
    chosen = {figure.key: figure for figure in entry.figures}
    if unknown := [key for key in keys if key not in chosen]:
        raise ValueError(f"benchmark {name} claims no {unknown[0]!r}; it has {', '.join(chosen)}")
    stored = results.STORED / f"{name}.json"
    record = json.loads(stored.read_text()) if stored.exists() else None
    lines = ["| figure | paper | measured |", "|---|---|---|"]
    for figure in [chosen[key] for key in keys] or entry.figures:
        value = results.look_up(record["figures"], figure.key) if record else None
        shown = "not run yet" if value is None else results.number(value)
        lines.append(f"| {figure.what} | {figure.published or '-'} | {shown} |")
    section = entry.name.replace("_", "-")
    command = f"`{record['command']}`; " if record else ""
    return "\n".join([*lines, "", f"{command}setting and notes in [Results]({up}results.md#{section})."])


def names_of_refork() -> str:
    """A line for the reference of each name, in the order of the alphabet."""
    found = {
        one.name: f"refork.{node.module}.{one.name}"
        for node in ast.parse(STUB.read_text()).body
        if isinstance(node, ast.ImportFrom)
        for one in node.names
    }
    return "\n\n".join(f"::: {found[name]}" for name in sorted(found, key=str.lower))


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Put the tables and the names in."""
    up = "../" * page.file.src_uri.count("/")
    markdown = MARKER.sub(lambda found: figures_table(found[1], found[2].split(), up), markdown)
    return markdown.replace(NAMES, names_of_refork())


def _picture(data: dict[str, Any]) -> str:
    """A picture of an output, in the page itself."""
    if "image/svg+xml" in data:
        text = data["image/svg+xml"]
        return f'<div class="notebook-picture">{text if isinstance(text, str) else "".join(text)}</div>'
    inside = "".join(data["image/png"]).strip()
    return f'<img alt="Picture of the cell above" src="data:image/png;base64,{inside}">'


def _output(output: dict[str, Any]) -> str:
    """One output of a cell as Markdown."""
    data = output.get("data", {})
    if "image/svg+xml" in data or "image/png" in data:
        return _picture(data)
    if "text/markdown" in data:
        return "".join(data["text/markdown"])
    text = "".join(output.get("text") or data.get("text/plain") or "").rstrip()
    return f"```text\n{text}\n```" if text else ""


def notebook_page(notebook: dict[str, Any], name: str) -> str:
    """A notebook with its stored outputs as Markdown."""
    parts = []
    for number, cell in enumerate(notebook["cells"]):
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            if number == 0:
                parts.append(f"*A notebook: `notebooks/{name}.ipynb`, run in the checks of every change.*")
        elif source:
            parts.append(f"```python\n{source}\n```")
            parts += filter(None, map(_output, cell["outputs"]))
    return "\n\n".join(parts) + "\n"


def security_page() -> str:
    """SECURITY.md, which lies where hosts look for it, with links as they are from docs/."""
    return (ROOT / "SECURITY.md").read_text().replace("](docs/", "](")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add a page for every notebook, and draw bars anew from what is stored now."""
    for name, picture in page_pictures.PICTURES.items():
        if isinstance(picture, page_pictures.Bars):
            place = f"pictures/{name}.svg"
            if (committed := files.get_file_from_path(place)) is not None:
                files.remove(committed)
            files.append(File.generated(config, place, content=page_pictures.bars(picture)))
    files.append(File.generated(config, "security.md", content=security_page()))
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        page = notebook_page(json.loads(path.read_text()), path.stem)
        files.append(File.generated(config, f"notebooks/{path.stem}.md", content=page))
    return files
