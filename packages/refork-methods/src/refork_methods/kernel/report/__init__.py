"""A search shown: its numbers, pictures and sources in one page and in one Markdown file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import final

from refork.errors import BadInput
from refork.types import Json
from refork_methods.kernel.report.figures import Figures, Search, figures, read_search
from refork_methods.kernel.report.page import markdown, render

__all__ = ["Figures", "Search", "Written", "figures", "read_search", "write_report"]


@final
@dataclass(frozen=True, slots=True)
class Written:
    """A report's numbers, and its two files."""

    figures: Figures
    markdown: Path
    html: Path

    def to_json(self) -> Json:
        """Plain JSON: the numbers, and where the files are."""
        return {**self.figures.to_json(), "markdown": str(self.markdown), "html": str(self.html)}


def write_report(folder: Path, out: Path | None = None) -> Written:
    """Write ``report.md`` and ``report.html`` of a stored search into ``out``, by default its own folder.

    Nothing is measured or built anew, and the search may still be running.

    Raises:
        BadInput: not the folder of a search, or ``out`` cannot be written to.
    """
    search = read_search(folder)
    told = figures(search)
    target = folder if out is None else out
    written = Written(told, target / "report.md", target / "report.html")
    try:
        target.mkdir(parents=True, exist_ok=True)
        written.markdown.write_text(markdown(search, told), encoding="utf-8")
        written.html.write_text(render(search, told), encoding="utf-8")
    except OSError as error:
        raise BadInput(
            f"the report cannot be written: {error.strerror}", where=str(target), hint="--out DIR"
        ) from error
    return written
