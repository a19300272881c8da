"""Pages: one HTML file that needs no network, from a template."""

from __future__ import annotations

from functools import cache
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from refork.report import palette, words
from refork.visible import visible


@cache
def environment(package: str) -> Environment:
    """The templates of a package, which may include those of the report, with the filters of all pages."""
    env = Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader("refork.report")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_plain,
    )
    names = ("rate", "points", "p_value", "level", "count", "duration", "token_text", "one_line")
    env.filters.update({name: getattr(words, name) for name in names})
    env.filters["shade"] = palette.shade
    env.globals.update(span=words.span, value_of=words.value_of, change_of=words.change_of, palette=palette)
    return env


def _plain(value: Any) -> Any:
    """Control characters made visible in everything the page prints."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value
