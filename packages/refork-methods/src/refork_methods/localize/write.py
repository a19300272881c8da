"""Case files on disk, each whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path

from refork.errors import BadInput
from refork_methods.localize.casefile import CaseFile
from refork_methods.localize.casefile_markdown import case_markdown
from refork_methods.localize.sarif import case_sarif
from refork_methods.localize.snapshot import Snapshot
from refork_methods.localize.validate import case_problems


def write_case(
    case: CaseFile,
    snapshot: Snapshot,
    *,
    out: Path | None = None,
    markdown: Path | None = None,
    sarif: Path | None = None,
) -> None:
    """Write the asked-for forms of a case: JSON, Markdown with the lines themselves, SARIF.

    Raises: BadInput where a file cannot be written.
    """
    if out is not None:
        replace_text(out, case.dumps())
    if markdown is not None:
        replace_text(markdown, case_markdown(case, snapshot, case_problems(case, snapshot)))
    if sarif is not None:
        replace_text(
            sarif, json.dumps(case_sarif(case), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        )


def replace_text(file: Path, text: str) -> None:
    """Write a text whole or not at all. Raises BadInput where the file cannot be written."""
    half = file.with_name(f".{file.name}.part")
    try:
        half.write_text(text, encoding="utf-8")
        half.replace(file)
    except OSError as error:
        raise BadInput(f"the file cannot be written: {error.strerror}", where=str(file)) from error
    finally:
        half.unlink(missing_ok=True)
