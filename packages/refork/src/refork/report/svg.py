"""SVG by small functions, for trees, strips and plans, which are no charts: all escaped, numbers short."""

from __future__ import annotations

from markupsafe import Markup, escape

from refork.visible import visible

Number = float | int


def num(value: Number) -> str:
    """A coordinate with at most one decimal, so that equal data give equal bytes."""
    text = f"{value:.1f}".removesuffix(".0")
    # Of two texts for the same place one: equal pictures are equal bytes.
    return "0" if text == "-0" else text


def tag(name: str, *content: str, **attributes: Number | str | None) -> Markup:
    """One element. ``class_`` is class, ``_`` in names is ``-``; None leaves an attribute out."""
    parts = [f"<{name}"]
    for key, value in attributes.items():
        if value is None:
            continue
        shown = value if isinstance(value, str) else num(value)
        parts.append(f' {key.rstrip("_").replace("_", "-")}="{escape(visible(shown))}"')
    inner = "".join(str(escape(visible(part) if not isinstance(part, Markup) else part)) for part in content)
    return Markup("".join(parts) + (f">{inner}</{name}>" if inner else "/>"))


def label(x: Number, y: Number, text: str, **attributes: Number | str | None) -> Markup:
    """A text element at a place."""
    return tag("text", text, x=x, y=y, **attributes)


def line(x1: Number, y1: Number, x2: Number, y2: Number, class_: str) -> Markup:
    """A straight line."""
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def svg(
    width: Number, height: Number, name: str, *content: str, class_: str = "", role: str = "img"
) -> Markup:
    """A whole picture, ``name`` read aloud in its place; lengths in CSS pixels."""
    return tag(
        "svg",
        *content,
        viewBox=f"0 0 {num(width)} {num(height)}",
        width=width,
        height=height,
        role=role,
        aria_label=name,
        class_=class_ or None,
    )
