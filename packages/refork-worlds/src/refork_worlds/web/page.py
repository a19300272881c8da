"""An open page: what it shows, and what can be done to it. Only to be used in the browser's thread."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, final
from urllib.parse import urljoin, urlsplit

from refork_worlds.web.tree import Node, nodes, text_of

#: Pages that are served from memory or a folder have this address; nothing leaves the process.
HOME: Final = "http://site.test/"
_TYPES: Final = {
    ".html": "text/html",
    ".htm": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".jpg": "image/jpeg",
}
#: Milliseconds that an action may take.
LIMIT: Final = 3000
#: Milliseconds that a page may take to load.
LOAD: Final = 15000
#: A frame and a task: what a page does at once is done then. It must look alike after two of them.
_SETTLE: Final = "() => new Promise(done => requestAnimationFrame(() => setTimeout(done)))"
#: How often a page may look different from what it looked a moment before.
_PATIENCE: Final = 40
#: What would open a second window opens in the one there is.
_ONE_WINDOW: Final = """
const stay = (event) => event.target.closest?.('[target]')?.removeAttribute('target');
for (const kind of ['click', 'submit']) document.addEventListener(kind, stay, true);
window.open = (url) => { location.href = url; return window; };
"""
_MARK: Final = "data-refork-target"


@final
class Tab:
    """A browser context of its own with one page: cookies and storage begin empty.

    ``site`` holds the pages by path, or is the folder they lie in; None: the page's own network.
    """

    def __init__(self, browser: Any, site: Mapping[str, str] | Path | None, start: str) -> None:
        self._context = browser.new_context(viewport={"width": 800, "height": 600}, locale="en-US")
        self._context.set_default_timeout(LIMIT)
        self._context.set_default_navigation_timeout(LOAD)
        self._site, self._start = site, start
        self._home = HOME if site is not None else start
        self._context.route("**/*", self._serve if site is not None else self._stay)
        self._context.add_init_script(_ONE_WINDOW)
        self.page = self._context.new_page()
        self.messages: list[str] = []
        self.page.on("dialog", self._dialog)
        self.page.on("popup", self._popup)
        self._session = self._context.new_cdp_session(self.page)
        self.open(start)

    def _serve(self, route: Any) -> None:
        url = route.request.url
        if not url.startswith(HOME):
            self._refuse(route)
            return
        path = re.split(r"[?#]", url[len(HOME) :])[0] or "index.html"
        kind = _TYPES.get(Path(path).suffix, "application/octet-stream")
        body = self._body(path)
        if body is None:
            route.fulfill(
                status=404, content_type="text/html", body="<title>missing</title><h1>no such page</h1>"
            )
        else:
            route.fulfill(status=200, content_type=kind, body=body)

    def _stay(self, route: Any) -> None:
        """A live site may load what it needs, but no page of another host is visited."""
        if route.request.is_navigation_request() and not self.near(route.request.url):
            self._refuse(route)
        else:
            route.continue_()

    def _refuse(self, route: Any) -> None:
        """An answer without content leaves the page; an error would show the browser's own."""
        if route.request.is_navigation_request():
            route.fulfill(status=204)
        else:
            route.abort()

    def near(self, address: str) -> bool:
        """Whether an address lies on this site."""
        here, there = urlsplit(self._home), urlsplit(address)
        return there.scheme in ("http", "https") and there.netloc == here.netloc

    def _body(self, path: str) -> str | bytes | None:
        if not isinstance(self._site, Path):
            return (self._site or {}).get(path)
        # Where a path leads in the end decides: a link, too, may go out of the folder.
        file = (self._site / path).resolve()
        inside = file.is_relative_to(self._site.resolve())
        return file.read_bytes() if inside and file.is_file() else None

    def _dialog(self, dialog: Any) -> None:
        self.messages.append(f"dialog {dialog.message} : accepted")
        dialog.accept()

    def _popup(self, popup: Any) -> None:
        """A second window has no place here."""
        popup.close()

    def see(self) -> tuple[str, tuple[Node, ...]]:
        """The page as text and as nodes, once it holds still."""
        last: str | None = None
        for _ in range(_PATIENCE):
            self.page.wait_for_load_state("load")
            self.page.evaluate(_SETTLE)
            found = nodes(self._session.send("Accessibility.getFullAXTree")["nodes"])
            text = text_of(self.page.title(), found)
            if text == last:
                break
            last = text
        said, self.messages = self.messages, []
        return "\n".join([*said, last or ""]), found

    def reach(self, address: str) -> bool:
        """Go to a page, unless it lies on another site."""
        near = self.near(urljoin(self._home, address))
        if near:
            self.open(address)
        return near

    def open(self, address: str) -> None:
        """Go to a page of this site, by its path or address."""
        self.page.goto(urljoin(self._home, address))

    def back(self) -> bool:
        """Go back; False where there is no page before."""
        history = self._session.send("Page.getNavigationHistory")
        # The first entry is the blank page that every tab opens with.
        if history["currentIndex"] <= 1:
            return False
        self.page.go_back()
        return True

    def scroll(self, way: str) -> None:
        """A screen up or down."""
        self.page.evaluate(f"() => window.scrollBy(0, {'-' if way == 'up' else ''}500)")

    def target(self, node: Node) -> Any:
        """The element of a node, for one action."""
        backend = {"backendNodeId": node.backend}
        found = self._session.send("DOM.resolveNode", backend)["object"]["objectId"]
        # The tree knows Chromium's number of a node, Playwright only selectors: an attribute joins them.
        every = f"document.querySelectorAll('[{_MARK}]')"
        old = f"{every}.forEach(e => e.removeAttribute('{_MARK}'));"
        code = f"function() {{ {old} (this.nodeType === 1 ? this : this.parentElement)"
        code += f".setAttribute('{_MARK}', ''); }}"
        self._session.send("Runtime.callFunctionOn", {"objectId": found, "functionDeclaration": code})
        return self.page.locator(f"[{_MARK}]")

    def storage(self) -> str | None:
        """The page's local storage under the key ``state``; None where it has none."""
        from playwright.sync_api import Error

        try:
            found = self.page.evaluate("() => localStorage.getItem('state')")
        except Error:
            return None
        return None if found is None else str(found)

    def picture(self) -> bytes:
        """The page as PNG."""
        return bytes(self.page.screenshot())

    def close(self) -> None:
        """Forget cookies and storage."""
        self._context.close()
