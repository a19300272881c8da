"""A case's folder: the JSON document and the Markdown text, written beside the journal."""

from __future__ import annotations

import json
from pathlib import Path

from refork.types import Json
from refork_methods.forensics.case import Case
from refork_methods.forensics.export import case_json
from refork_methods.forensics.markdown import case_markdown


def write_report(case: Case, folder: Path, *, likelihood: bool = False) -> Json:
    """Write ``case.json`` and ``case.md``, each whole or not at all; what the JSON document says."""
    told = case_json(case, likelihood=likelihood)
    _replace(folder / "case.json", json.dumps(told, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    _replace(folder / "case.md", case_markdown(told))
    return told


def _replace(file: Path, text: str) -> None:
    half = file.with_name(file.name + ".part")
    half.write_text(text, encoding="utf-8")
    half.replace(file)
