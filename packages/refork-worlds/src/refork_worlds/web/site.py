"""A small site (shop, cart, list, settings, form) as plain HTML and JavaScript, filled by a task.

What a visitor changes lies in the page's local storage as one JSON object, the task's at first. The site's
rules are its script's; :func:`wanted` says only what the object must be in the end.
"""

from __future__ import annotations

import json
from typing import Any, Final

from refork.types import Json
from refork.worlds.dice import Dice

FRUITS: Final = ("plum", "pear", "lime", "kiwi", "fig", "date", "melon", "grape")
THINGS: Final = ("milk", "bread", "rice", "salt", "eggs", "soap", "tea", "corn")
LANGUAGES: Final = ("english", "french", "german", "greek")
NAMES: Final = ("ann", "bob", "cat", "dan", "eve", "fay")
TOPICS: Final = ("help", "news", "jobs")
SUBJECTS: Final = ("hello", "thanks", "question", "order", "idea", "price")
PAGES: Final = ("shop", "cart", "list", "settings", "write")

_SCRIPT: Final = """
const begin = %s;
const prices = %s;
const read = () => JSON.parse(localStorage.getItem('state')) || begin;
const keep = (state) => localStorage.setItem('state', JSON.stringify(state));
const put = (html) => { document.querySelector('main').innerHTML = html; };
const find = (id) => document.getElementById(id);
const query = new URLSearchParams(location.search);
keep(read());
"""
_PAGE: Final = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>%s</title>
<style>
body{font:16px sans-serif;margin:24px}
a,button{margin-right:12px}li{margin:6px 0}[aria-selected=true]{font-weight:bold}main{margin-top:16px}</style>
</head><body><nav>%s</nav><main></main><script src="site.js"></script><script>%s</script></body></html>"""

_CODE: Final = {
    "index": "put('<h1>home</h1><p>welcome</p>');",
    "shop": """
put('<h1>shop</h1><ul>' + Object.keys(prices).map((name) =>
  `<li><a href="item.html?name=${name}">${name}</a></li>`).join('') + '</ul>');""",
    "item": """
const name = query.get('name');
document.title = 'item ' + name;
const draw = () => {
  const many = read().cart[name] || 0;
  put(`<h1>${name}</h1><p>price ${prices[name]}</p>
    <label>count <select id="count" autocomplete="off">
    <option>1</option><option>2</option><option>3</option></select></label> <button id="add">add</button>
    <p role="status">in cart ${many}</p>`);
  find('add').onclick = () => {
    const state = read();
    state.cart[name] = Number(find('count').value);
    keep(state); draw();
  };
};
draw();""",
    "cart": """
const draw = () => {
  const cart = read().cart, names = Object.keys(cart).sort();
  const total = names.reduce((sum, name) => sum + cart[name] * prices[name], 0);
  put('<h1>cart</h1><ul>' + names.map((name) =>
    `<li>${name} ${cart[name]} <button data-name="${name}">remove ${name}</button></li>`).join('') +
    `</ul><p>total ${total}</p>`);
  document.querySelectorAll('button').forEach((one) => one.onclick = () => {
    const state = read();
    delete state.cart[one.dataset.name];
    keep(state); draw();
  });
};
draw();""",
    "list": """
const draw = () => {
  put('<h1>list</h1><ul>' + read().list.map(([name, done]) =>
    `<li><label><input type="checkbox" data-name="${name}" ${done ? 'checked' : ''}>${name}</label></li>`
    ).join('') + '</ul><form autocomplete="off"><label>new <input id="new">' +
    '</label> <button>add</button></form>');
  document.querySelectorAll('[type=checkbox]').forEach((one) => one.onchange = () => {
    const state = read();
    state.list.find((row) => row[0] === one.dataset.name)[1] = one.checked;
    keep(state);
  });
  document.querySelector('form').onsubmit = (event) => {
    event.preventDefault();
    const state = read(), name = find('new').value.trim();
    if (name && !state.list.some((row) => row[0] === name)) {
      state.list.push([name, false]); keep(state);
    }
    draw();
  };
};
draw();""",
    "settings": """
const choice = (now) => %s.map((one) => `<option ${one === now ? 'selected' : ''}>${one}</option>`).join('');
const draw = (tab) => {
  const now = read().settings;
  const on = (one) => now[one] ? 'checked' : '';
  const box = (one) => `<label><input type="checkbox" id="${one}" ${on(one)}>${one}</label>`;
  const body = tab === 'profile' ? `<label>name <input id="name" value="${now.name}"></label>
    <label>language <select id="language">${choice(now.language)}</select></label>` :
    ['news', 'ads'].map(box).join('');
  put('<h1>settings</h1><div role="tablist">' + ['profile', 'mail'].map((one) =>
    `<button role="tab" aria-selected="${one === tab}">${one}</button>`).join('') +
    `</div><form autocomplete="off">${body}<button>save</button></form><p role="status"></p>`);
  document.querySelectorAll('[role=tab]').forEach((one) => one.onclick = () => draw(one.textContent));
  document.querySelector('form').onsubmit = (event) => {
    event.preventDefault();
    const state = read();
    event.target.querySelectorAll('[id]').forEach((one) => {
      state.settings[one.id] = one.type === 'checkbox' ? one.checked : one.value;
    });
    keep(state);
    document.querySelector('[role=status]').textContent = 'saved';
  };
};
draw('profile');""",
    "write": """
put(`<h1>write</h1><form action="sent.html" autocomplete="off"><label>subject
  <input name="subject" required></label> <label>to <select name="to">%s</select></label>
  <button>send</button></form>`);""",
    "sent": """
const state = read(), said = [query.get('subject'), query.get('to')];
if (!state.sent.some((row) => row.join() === said.join())) { state.sent.push(said); keep(state); }
put(`<h1>sent</h1><p>${said[0]} to ${said[1]}</p>`);""",
}


def pages(data: Json) -> dict[str, str]:
    """The site of a task: path -> HTML or JavaScript."""
    links = " ".join(f'<a href="{name}.html">{name}</a>' for name in PAGES)
    parts = {"settings": json.dumps(LANGUAGES), "write": "".join(f"<option>{one}</option>" for one in TOPICS)}
    found = {"site.js": _SCRIPT % (json.dumps(data["state"]), json.dumps(data["prices"]))}
    for name, code in _CODE.items():
        title = "home" if name == "index" else name
        found[f"{name}.html"] = _PAGE % (title, links, code % parts[name] if name in parts else code)
    return found


WORDING: Final = {
    "buy": "put {0} {1} into the cart",
    "drop": "take {0} out of the cart",
    "add": "add {0} to the list",
    "tick": "tick {0} on the list",
    "name": "set the name to {0} and save",
    "language": "set the language to {0} and save",
    "news": "turn the news {0} and save",
    "send": "send the subject {0} to {1}",
}


def draw(dice: Dice) -> Json:
    """Stock, state and request of a random task; it is never done from the start."""
    fruits = sorted(dice.sample(FRUITS, 3 + dice.below(2)))
    things = dice.sample(THINGS, 2 + dice.below(2))
    in_cart = dice.sample(fruits, 1 + dice.below(2))
    state: Json = {
        "cart": {name: 1 + dice.below(3) for name in in_cart},
        "list": [[name, False] for name in things],
        "settings": {
            "name": dice.choice(NAMES),
            "language": dice.choice(LANGUAGES),
            "news": dice.below(2) == 1,
            "ads": dice.below(2) == 1,
        },
        "sent": [],
    }
    kind, now = dice.choice(tuple(WORDING)), state["settings"]
    free = [name for name in fruits if name not in in_cart]
    args = {
        "buy": [str(1 + dice.below(3)), dice.choice(free)],
        "drop": [dice.choice(in_cart)],
        "add": [dice.choice([name for name in THINGS if name not in things])],
        "tick": [dice.choice(things)],
        "name": [dice.choice([name for name in NAMES if name != now["name"]])],
        "language": [dice.choice([name for name in LANGUAGES if name != now["language"]])],
        "news": ["off" if now["news"] else "on"],
        "send": [dice.choice(SUBJECTS), dice.choice(TOPICS)],
    }
    prices = {name: 1 + dice.below(9) for name in fruits}
    return {"prices": prices, "state": state, "kind": kind, "args": args[kind]}


def wanted(data: Json) -> Json:
    """The state that the page must hold in the end."""
    after: Json = json.loads(json.dumps(data["state"]))
    kind, args = data["kind"], data["args"]
    if kind == "buy":
        after["cart"][args[1]] = int(args[0])
    elif kind == "drop":
        del after["cart"][args[0]]
    elif kind == "add":
        after["list"].append([args[0], False])
    elif kind == "tick":
        after["list"] = [[name, done or name == args[0]] for name, done in after["list"]]
    elif kind == "send":
        after["sent"].append(list(args))
    elif kind == "news":
        after["settings"]["news"] = args[0] == "on"
    else:
        after["settings"][kind] = args[0]
    return after


def describe(data: Json) -> str:
    """Stock and state in words, a line for each page."""
    stock = " , ".join(f"{name} {price}" for name, price in data["prices"].items())
    return "\n".join(
        [f"prices : {stock}", *(f"{key} : {text}" for key, text in in_words(data["state"]).items())]
    )


def in_words(state: Any) -> dict[str, str]:
    """A state in words, by its part."""
    rows = {
        # The page keeps the order in which things came into the cart; equal carts must read equally.
        "cart": [f"{name} {many}" for name, many in sorted(state["cart"].items())],
        "list": [f"{name} {'ticked' if done else 'open'}" for name, done in state["list"]],
        "settings": [
            f"{key} {value}" if isinstance(value, str) else f"{key} {'on' if value else 'off'}"
            for key, value in state["settings"].items()
        ],
        "sent": [f"{subject} to {to}" for subject, to in state["sent"]],
    }
    return {key: " , ".join(row) or "empty" for key, row in rows.items()}
