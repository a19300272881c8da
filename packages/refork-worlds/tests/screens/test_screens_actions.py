"""Published action formats are read, and the screens they meet are what their rules say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from refork_worlds.screens.actions import action_in, desktop_action, phone_action
from refork_worlds.screens.desktop import Desktop, DesktopState
from refork_worlds.screens.elements import Element, line
from refork_worlds.screens.phone import Phone, PhoneState


@pytest.mark.parametrize(
    ("turn", "wanted"),
    [
        ('{"action_type": "click", "index": 3}', {"action_type": "click", "index": 3}),
        ('Reason: x\nAction: {"action_type": "click", "index": "3"}', {"action_type": "click", "index": 3}),
        (
            '<think>{"action_type": "wait"}</think>```json\n{"action_type": "status"}\n```',
            {"action_type": "status"},
        ),
        ('{"action_type": "click", "index": true}', None),
        ('{"action_type": "jump"}', None),
        ("click 3", None),
        ('{"action_type": "click", "index": "²"}', None),
        ('{"action_type": "click", "index": "' + "9" * 5000 + '"}', None),
        ('{"a":' * 100_000 + "1" + "}" * 100_000, None),
        ("", None),
    ],
)
def test_phone_actions(turn, wanted):
    assert phone_action(turn) == wanted


@pytest.mark.parametrize(
    ("turn", "wanted"),
    [
        ("pyautogui.click(60, 80)", {"action_type": "CLICK", "x": 60, "y": 80}),
        ("import pyautogui\npyautogui.click(x=60, y=80)", {"action_type": "CLICK", "x": 60, "y": 80}),
        ("```python\npyautogui.rightClick(1.5, 2)\n```", {"action_type": "RIGHT_CLICK", "x": 1.5, "y": 2}),
        ("pyautogui.typewrite('a b', interval=0.1)", {"action_type": "TYPING", "text": "a b"}),
        ("pyautogui.write(message='a')", {"action_type": "TYPING", "text": "a"}),
        ("pyautogui.hotkey('ctrl', 's')", {"action_type": "HOTKEY", "keys": ["ctrl", "s"]}),
        ('{"action_type": "CLICK", "x": 1, "y": 2}', {"action_type": "CLICK", "x": 1, "y": 2}),
        (
            '{"action_type": "PRESS", "parameters": {"key": "enter"}}',
            {"action_type": "PRESS", "key": "enter"},
        ),
        ("DONE", {"action_type": "DONE"}),
        ("pyautogui.click(1, 2)\npyautogui.click(3, 4)", None),
        ("pyautogui.click(__import__('os').system('x'))", None),
        ("os.system('x')", None),
        ("pyautogui.click(1, 2", None),
        ("pyautogui.click({[1]: 2})", None),
        ("pyautogui.click(" + "-" * 100_000 + "1)", None),
        ("pyautogui.click(**{'x': 1})", None),
        ("pyautogui.write(0x1" + "0" * 5000 + ")", None),
        ('{"a":' * 100_000 + "1" + "}" * 100_000, None),
    ],
)
def test_desktop_actions_are_read_and_never_run(turn, wanted):
    assert desktop_action(turn) == wanted


def test_the_action_is_the_last_fenced_block():
    assert action_in("one ```a``` two ```\nb\n```") == "b"
    assert action_in("<think>```a```</think>plain") == "plain"


def test_a_line_quotes_what_is_no_plain_word():
    assert line(Element("Switch", (("text", "wifi"),), ("checked",)), 3) == "3 Switch text wifi checked"
    assert line(Element("text", (("name", 'say "x"\n'),), (), (4, 5))) == 'text name "say \\"x\\"\\n" at 4 5'


PHONE = PhoneState(
    settings=(("wifi", True), ("bluetooth", True), ("airplane", False), ("dark", False)),
    volume="low",
    contacts=tuple((name, "1") for name in ("ann", "bob", "cat", "dan", "eve")),
    notes=("buy milk",),
    alarms=(("7:00", True),),
)


def test_the_phone_keeps_its_rules():
    phone = Phone(PHONE, PHONE)
    state = replace(PHONE, view="settings")
    step = phone.step(state, '{"action_type": "click", "index": 3}')
    assert dict(step.state.settings) == {"wifi": False, "bluetooth": False, "airplane": True, "dark": False}
    assert step.note == "3 is Switch airplane ; airplane off to on ; wifi and bluetooth off"
    contacts = replace(PHONE, view="contacts")
    assert "scrollable" in phone.view(contacts)
    assert "eve" not in phone.view(contacts)
    down = phone.step(contacts, '{"action_type": "scroll", "direction": "down"}')
    assert "1 TextView text eve clickable" in down.text
    again = phone.step(down.state, '{"action_type": "scroll", "direction": "down"}')
    assert again.text == down.text
    assert again.note.endswith("no more down")
    asked = phone.step(replace(PHONE, view="note", about="buy milk"), '{"action_type": "click", "index": 2}')
    assert asked.text.startswith("app delete buy milk")
    assert asked.state.notes == ("buy milk",)
    gone = phone.step(asked.state, '{"action_type": "click", "index": 2}')
    assert gone.state.notes == ()
    ended = phone.step(gone.state, '{"action_type": "status", "goal_status": "complete"}')
    assert (ended.text, ended.met, ended.note) == (
        "the task is not done",
        False,
        "complete ; 1 not as wanted",
    )
    assert phone.step(PHONE, '{"action_type": "status", "goal_status": "infeasible"}').met is False


DESK = DesktopState(folders=("docs", "work"), files=(("docs/plan", "buy milk"),))


def test_the_desktop_keeps_its_rules():
    desk = Desktop(DESK, DESK, ("delete",))
    opened = replace(
        DESK, front="editor", windows=("files", "editor"), folder="docs", doc="docs/plan", text="buy milk"
    )
    typed = desk.step(opened, 'pyautogui.write("now")')
    assert typed.state.text == "buy milk now"
    marked = desk.step(typed.state, 'pyautogui.hotkey("ctrl", "a")')
    assert "marked" in marked.text
    fresh = desk.step(marked.state, 'pyautogui.write("sell boat")').state
    assert (fresh.text, dict(fresh.files)["docs/plan"]) == ("sell boat", "buy milk")
    asked = desk.step(fresh, "pyautogui.click(420, 40)")
    assert "label name save plan in docs" in asked.text
    assert desk.step(asked.state, "pyautogui.click(5, 5)").text == asked.text
    saved = desk.step(asked.state, "pyautogui.click(120, 220)").state
    assert dict(saved.files)["docs/plan"] == "sell boat"
    assert (saved.front, saved.windows, saved.doc) == ("files", ("files",), "")
    dropped = desk.step(asked.state, "pyautogui.click(240, 220)").state
    assert dict(dropped.files)["docs/plan"] == "buy milk"
    menu = desk.step(replace(DESK, front="files", windows=("files",)), "pyautogui.rightClick(160, 120)")
    assert "menu-item name rename at 280 160" in menu.text
    assert desk.step(menu.state, "pyautogui.click(10, 300)").state.menu == ""
    assert desk.step(DESK, "FAIL").met is False
    assert desk.step(DESK, "DONE").met is True
