"""Writing an export: into a new or empty folder, all files or none are there at the end."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from refork.errors import BadInput


def write_files(folder: str | Path, files: Mapping[str, str]) -> list[Path]:
    """Write texts by relative path into a folder that is not there or is empty; the paths written.

    Raises:
        BadInput: the folder holds something, or is a file.
    """
    target = Path(folder)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise BadInput(f"{target} is not an empty folder", hint="name a new folder, or empty this one")
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        for name, text in files.items():
            (draft / name).parent.mkdir(parents=True, exist_ok=True)
            (draft / name).write_text(text, encoding="utf-8")
        draft.chmod(0o755)
        if target.exists():
            target.rmdir()
        draft.rename(target)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return [target / name for name in files]
