"""Rich's console, to which any text may be given."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, final

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from refork.visible import visible


@final
class SafeConsole(Console):
    """Makes every text visible before it is laid out and styled."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """As rich's."""
        return super().render(
            _visible_text(renderable) if isinstance(renderable, Text) else renderable, options
        )

    def render_str(self, text: str, **given: Any) -> Text:
        """As rich's."""
        return super().render_str(visible(text), **given)


def _visible_text(text: Text) -> Text:
    plain = text.plain
    made = visible(plain)
    if made == plain:
        return text
    text = text.copy()
    text.plain = made  # as many characters, so that styles stay where they are
    return text
