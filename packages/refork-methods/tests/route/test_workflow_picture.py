"""The picture of a workflow."""

from __future__ import annotations

from xml.etree import ElementTree

from refork.chat import ScriptedChat
from refork_methods.route.conduct.execute import execute
from refork_methods.route.conduct.plan import Plan
from refork_methods.route.pool import Price, Worker, WorkerPool
from refork_methods.route.workflow_picture import workflow_picture

PLAN = Plan(("A", "B", "A"), ("find <it>", "check", "x " * 90), ((), (1,), (1, 2)))


def test_boxes_and_arrows() -> None:
    chats = (ScriptedChat(lambda messages: "well & good", "A"), ScriptedChat(lambda messages: "b", "B"))
    pool = WorkerPool(tuple(Worker(c.name, chat=c, price=Price(0, 0, 0.5)) for c in chats))
    picture = workflow_picture(execute(PLAN, pool), "what is it?")
    root = ElementTree.fromstring(picture)
    space = "{http://www.w3.org/2000/svg}"
    assert len(root.findall(f"{space}rect")) == 4
    assert picture.count("<path") == 2 * 3
    assert "find &lt;it&gt;" in picture
    assert "→ well &amp; good" in picture
    assert "1 call, 0.5" in picture
    assert "…" in picture


def test_failures_show() -> None:
    picture = workflow_picture(execute(PLAN, WorkerPool.of("A", "B")))
    assert "failed: worker" in picture
    assert "failed: needs the answer of step 1" in picture
    assert "no answer" in picture
