"""The page and the files it loads, all from the package; and the page as one script for a file to share."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from functools import cache
from importlib.resources import files
from typing import Final

from refork.errors import BadInput, InternalError
from refork.report.palette import DARK, LIGHT
from refork.types import Json

_PACKAGE: Final = "refork.viewer.live"
#: Our modules and those of other projects, each after what it imports.
MODULES: Final = (
    "vendor/preact.js",
    "vendor/hooks.js",
    "vendor/htm.js",
    "base.js",
    "text.js",
    "offline.js",
    "data.js",
    "place.js",
    "parts.js",
    "scroller.js",
    "tasks.js",
    "tree.js",
    "tokens.js",
    "effect.js",
    "fork.js",
    "chat.js",
    "diff.js",
    "effects.js",
    "scores.js",
    "graph.js",
    "help.js",
    "main.js",
)
_SCRIPT: Final = "text/javascript; charset=utf-8"
#: Everything the page may ask for below ``/web/``, with its media type.
ASSETS: Final = {
    **dict.fromkeys(MODULES, _SCRIPT),
    "page.css": "text/css; charset=utf-8",
    "vendor/LICENSES.txt": "text/plain; charset=utf-8",
}
_IMPORT: Final = re.compile(r'^import\s*\{([^}]*)\}\s*from\s*"([^"]+)";?', re.MULTILINE)
_DEFAULT: Final = re.compile(r'^import\s+(\w+)\s+from\s*"([^"]+)";?', re.MULTILINE)
_EXPORT: Final = re.compile(r"export\s*\{([^}]*)\};?\s*$")


@cache
def asset(name: str) -> bytes:
    """The bytes of one of :data:`ASSETS`. Raises BadInput for another name."""
    if name not in ASSETS:
        raise BadInput(f"the page has no part {name!r}")
    data = files(_PACKAGE).joinpath("web", *name.split("/")).read_bytes()
    return _scale().encode() + data if name == "page.css" else data


def _scale() -> str:
    """The success scale as variables, light and dark."""
    light, dark = (
        "".join(f"--s{step}:{colour};" for step, colour in enumerate(scale)) for scale in (LIGHT, DARK)
    )
    return (
        f":root{{{light}}}\n:root[data-theme=dark]{{{dark}}}\n"
        f"@media (prefers-color-scheme:dark){{:root:not([data-theme=light]){{{dark}}}}}\n"
    )


def live_page(start: Json) -> str:
    """The page of the live server; ``start`` is what its script is told."""
    links = "\n".join(f'<link rel="modulepreload" href="/web/{name}">' for name in MODULES)
    head = f'<link rel="stylesheet" href="/web/page.css">\n{links}'
    return _document(head, f'{_data(start)}\n<script type="module" src="/web/main.js"></script>')


def shared_page(start: Json) -> str:
    """The page as one file that needs nothing else: no network, no scripts but its own."""
    script = bundle()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    style = asset("page.css").decode()
    head = f'<meta http-equiv="content-security-policy" content="{policy}">\n<style>\n{style}</style>'
    # Two hyphens may end the comment that these stand in.
    notices = asset("vendor/LICENSES.txt").decode().replace("--", "- -")
    return _document(
        head, f"{_data(start)}\n<script>{script}</script>\n<!-- Parts of other projects:\n{notices}-->"
    )


def _data(start: Json) -> str:
    # "<" would end the script element that the data stands in.
    text = json.dumps(start, allow_nan=False).replace("<", "\\u003c")
    return f'<script type="application/json" id="start">{text}</script>'


def _document(head: str, body: str) -> str:
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>Refork</title>\n'
        '<link rel="icon" href="data:,">\n'
        f'{head}\n</head>\n<body>\n<div id="app"></div>\n{body}\n</body>\n</html>\n'
    )


@cache
def bundle() -> str:
    """All modules as one classic script: a file that is opened from a disk may not import others."""
    parts = [_wrapped(name, asset(name).decode()) for name in MODULES]
    script = "(() => {\n'use strict';\n" + "\n".join(parts) + "\n})();\n"
    if "</script" in script.lower():
        raise InternalError("a module of the page holds the end of a script element")
    return script


def _wrapped(name: str, source: str) -> str:
    """A module as a function that gives what it exports."""
    folder = name.rpartition("/")[0]

    def imported(match: re.Match[str]) -> str:
        names = re.sub(r"\s+as\s+", ": ", match[1])
        return f"const {{{names}}} = {_name(folder, match[2])};"

    def whole(match: re.Match[str]) -> str:
        return f"const {match[1]} = {_name(folder, match[2])}.default;"

    body, given = source.strip(), ""
    if "export default " in body:
        body, given = body.replace("export default ", "const alone = ", 1), "default: alone"
    elif found := _EXPORT.search(body):
        pairs = [part.split(" as ") for part in map(str.strip, found[1].split(",")) if part]
        given = ", ".join(f"{pair[-1]}: {pair[0]}" for pair in pairs)
        body = body[: found.start()]
    body = re.sub(r'import\{([^}]*)\}from"([^"]+)";?', imported, body)
    body = _DEFAULT.sub(whole, _IMPORT.sub(imported, body))
    if re.search(r"^\s*(import|export)\b", body, re.MULTILINE):
        raise InternalError(f"a module of the page imports or exports in another form: {name}")
    return _call(name, f"{body}\nreturn {{{given}}};")


def _call(name: str, body: str) -> str:
    return f"const {_variable(name)} = (() => {{\n{body}\n}})();"


def _name(folder: str, place: str) -> str:
    """The variable of a module that another one, in ``folder``, imports."""
    path = place.removeprefix("./")
    if path.startswith("../"):
        return _variable(path.removeprefix("../"))
    return _variable(f"{folder}/{path}" if folder else path)


def _variable(name: str) -> str:
    return "module_" + re.sub(r"\W", "_", name)
