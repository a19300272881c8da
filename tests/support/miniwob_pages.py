"""A folder of pages with MiniWoB's interface: what its ``core.js`` offers, and a few small tasks."""

from __future__ import annotations

from pathlib import Path

_CORE = """
var core = {}, WOB_DATA_MODE = 'default';
var WOB_DONE_GLOBAL = false, WOB_RAW_REWARD_GLOBAL = 0, WOB_REWARD_REASON = null;
core.EPISODE_MAX_TIME = 10000;
Math.seedrandom = (seed) => {
  let state = Number(seed) % 2147483647 || 1;
  Math.random = () => (state = state * 16807 % 2147483647) / 2147483647;
};
core.setDataMode = (mode) => { WOB_DATA_MODE = mode; };
core.startEpisodeReal = () => {
  genProblem();
  core.begun = Date.now();
  core.timer = setTimeout(() => core.endEpisode(-1, false, 'timed out'), core.EPISODE_MAX_TIME);
};
core.endEpisode = (reward, decays, reason) => {
  if (!core.timer) return;
  clearTimeout(core.timer);
  core.timer = null;
  WOB_DONE_GLOBAL = true;
  WOB_RAW_REWARD_GLOBAL = reward;
  WOB_REWARD_REASON = reason;
};
"""
_PAGE = """<!doctype html><html><head><script src="../core/core.js"></script></head><body>
<div id="wrap"><div id="query"></div><div id="area">%s</div></div><script>
const find = (id) => document.getElementById(id);
%s</script></body></html>"""
_TASKS = {
    # Which of the buttons is right is drawn; held-out tasks say it in other words.
    "press": (
        '<button id="a">ONE</button> <button id="b">TWO</button>',
        """var genProblem = () => {
  const right = Math.random() < 0.5 ? 'a' : 'b';
  const name = find(right).textContent;
  find('query').textContent = WOB_DATA_MODE === 'test' ? `Press ${name}` : `Click ${name}.`;
  for (const id of ['a', 'b']) {
    find(id).onclick = () => core.endEpisode(id === right ? 1 : -1, true, 'pressed');
  }
};""",
    ),
    # Every kind of field, and a drawing.
    "form": (
        """<label>Name <input id="name" value="old"></label>
<label><input type="checkbox" id="box">agree</label>
<select id="list"><option>red</option><option>blue</option></select> <input type="date" id="day">
<textarea id="note"></textarea> <p>some <b>bold</b> words</p> <a href="#">more</a>
<svg width="80" height="40"><circle id="dot" cx="20" cy="20" r="9" fill="red"></circle></svg>
<div style="display:none">hidden</div> <div class="bin" style="width:9px;height:9px"></div>
<button id="ok">Send</button>""",
        """var genProblem = () => { find('query').textContent = 'Fill in.'; };
find('ok').onclick = () => {
  const got = [find('name').value, find('box').checked, find('list').value, find('day').value];
  got.push(find('note').value);
  core.endEpisode(got.join() === 'ada,true,blue,2020-02-03,a b' ? 1 : 0.25, false, got.join());
};""",
    ),
    # A link that leads away, a form that loads the page anew, a dialog.
    "leave": (
        """<a href="nowhere.html">away</a><form><button>again</button></form>
<button id="say" type="button">say</button>""",
        """var genProblem = () => { find('query').textContent = 'Stay.'; };
find('say').onclick = () => alert('hello');""",
    ),
    # When the frames come, by both clocks.
    "frames": (
        '<p id="when"></p>',
        """var genProblem = () => {
  find('query').textContent = 'Watch.';
  const frame = () => {
    find('when').textContent = `${performance.now()} ${Date.now()}`;
    if (performance.now() % 16000 < 40) requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
};""",
    ),
    # A dot that moves by chance and time; a tick is counted every 100 ms.
    "move": (
        """<p id="ticks">0</p>
<svg width="160" height="120"><circle id="dot" cx="20" cy="20" r="9"></circle></svg>""",
        """var genProblem = () => {
  find('query').textContent = 'Watch.';
  setInterval(() => {
    find('ticks').textContent = Number(find('ticks').textContent) + 1;
    find('dot').setAttribute('cx', Math.floor(20 + Math.random() * 100));
  }, 100);
};""",
    ),
}


def write(folder: Path) -> Path:
    """The folder, with ``core/core.js`` and ``miniwob/*.html`` in it."""
    (folder / "core").mkdir(parents=True)
    (folder / "miniwob").mkdir()
    (folder / "core" / "core.js").write_text(_CORE)
    for name, (area, script) in _TASKS.items():
        (folder / "miniwob" / f"{name}.html").write_text(_PAGE % (area, script))
    return folder
