"""The page and what it loads: HTML, scripts, styles and jsPsych, all from the package."""

from __future__ import annotations

import json
import shutil
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Final

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from refork.errors import BadInput, CannotDo
from refork.types import Json
from refork_methods.theory.people.document import Mode, Study, document

#: Scripts in the order in which they run.
SCRIPTS: Final = ("vendor/jspsych.min.js", "transport.js", "stimuli.js", "plugins.js", "page.js")
#: Everything below ``assets/``, with its media type.
ASSETS: Final = {
    **dict.fromkeys(SCRIPTS, "text/javascript; charset=utf-8"),
    "page.css": "text/css; charset=utf-8",
    "vendor/LICENSES.txt": "text/plain; charset=utf-8",
}
_PACKAGE: Final = "refork_methods.theory.people"


@cache
def asset(name: str) -> bytes:
    """The bytes of one of :data:`ASSETS`. Raises BadInput for another name."""
    if name not in ASSETS:
        raise BadInput(f"the page has no part {name!r}")
    return files(_PACKAGE).joinpath("page", *name.split("/")).read_bytes()


def page(study: Study, mode: Mode) -> str:
    """The page of a study as HTML; equal studies give equal bytes."""
    told = document(study, mode)
    # "<" would end the script element that the document stands in.
    text = json.dumps(told, ensure_ascii=False, sort_keys=True).replace("<", "\\u003c")
    found: str = _template().render(texts=told["texts"], document=Markup(text), scripts=SCRIPTS)
    return found + "\n"


def export(study: Study, folder: Path | str) -> Json:
    """Write the page into a folder that needs no server of ours; gives the files and their bytes.

    Raises:
        BadInput: the folder holds something else.
        CannotDo: it cannot be written.
    """
    out = Path(folder)
    if out.exists() and not (out.is_dir() and (not any(out.iterdir()) or (out / "study.json").is_file())):
        raise BadInput("this is no empty folder, and no export", where=str(out), hint="name another --out")
    texts = {"index.html": page(study, "file"), "study.json": _pretty(document(study, "file"))}
    sizes: dict[str, int] = {}
    try:
        shutil.rmtree(out / "assets", ignore_errors=True)
        for name, data in [(k, v.encode()) for k, v in texts.items()] + [
            (f"assets/{k}", asset(k)) for k in ASSETS
        ]:
            file = out / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
            sizes[name] = len(data)
    except OSError as error:
        raise CannotDo(f"the page cannot be written: {error.strerror}", where=str(out)) from error
    return {"folder": str(out), "study": study.digest, "files": sizes}


def _pretty(data: Json) -> str:
    return json.dumps(data, ensure_ascii=False, indent=1, sort_keys=True) + "\n"


@cache
def _template() -> Template:
    loader = PackageLoader(_PACKAGE, "page")
    found = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    return found.get_template("index.html.j2")
