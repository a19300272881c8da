// The tree of one task as an outline: any number of lines, those in sight are read when they are needed.
import { html, useAnswer, useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState, classes } from "./base.js";
import { ask, column } from "./data.js";
import { choose } from "./place.js";
import { Busy, Choice, Legend, Mark, Notice, Score, known, scale } from "./parts.js";
import { Scroller, reveal } from "./scroller.js";
import { count, fixed, oneLine, plural, visible } from "./text.js";

const HEIGHT = 30;
const INDENT = 14;
const DEEPEST = 16;
const CHUNK = 120;
// Larger tasks begin with their outer branches alone.
const LARGE = 3000;

// The columns of all lines, and the range of their scores.
function decoded(told) {
  const means = column(told.means, Float32Array);
  let low = 0;
  let high = 0;
  for (const mean of means) {
    if (mean < low) low = mean;
    if (mean > high) high = mean;
  }
  return {
    ...told, means, low, high, step: scale(low, high), rows: column(told.rows, Int32Array),
    levels: column(told.levels, Int32Array), sizes: column(told.sizes, Int32Array),
  };
}

// Numbers of the lines that are not inside a closed one.
function openLines(shape, isOpen) {
  const found = new Int32Array(shape.count);
  let length = 0;
  for (let line = 0; line < shape.count; ) {
    found[length++] = line;
    line += shape.sizes[line] > 1 && !isOpen(line) ? shape.sizes[line] : 1;
  }
  return found.subarray(0, length);
}

function useShape(asked, version) {
  const key = JSON.stringify(asked);
  const told = useAnswer(() => ask("shape", asked).then(decoded), [version, key]);
  return told.value && told.value.task === asked.task ? told : { ...told, value: null };
}

// What lines show, read in chunks and kept while the tree stays as it is.
function useLines(asked, shape) {
  const [, redraw] = useState(0);
  const kept = useRef({ key: "", lines: new Map(), asked: new Set() });
  const key = `${shape?.version}\n${JSON.stringify(asked)}`;
  if (kept.current.key !== key) {
    // What was in sight stays there until it is read anew.
    kept.current = { key, lines: new Map(), asked: new Set(), before: kept.current.lines };
  }
  const want = useCallback(
    (lines) => {
      const mine = kept.current;
      const missing = lines.filter((line) => !mine.asked.has(line));
      for (let from = 0; from < missing.length; from += CHUNK) {
        const part = missing.slice(from, from + CHUNK);
        part.forEach((line) => mine.asked.add(line));
        ask("lines", { ...asked, wanted: part.join(",") }).then(
          (told) => {
            told.lines.forEach((line) => mine.lines.set(line.parts[0].row, line));
            if (kept.current === mine) redraw((n) => n + 1);
          },
          () => part.forEach((line) => mine.asked.delete(line)),
        );
      }
    },
    [key],
  );
  // Kept by the row of a line's first node: lines move when a tree grows, rows do not.
  const get = (line) => kept.current.lines.get(shape.rows[line]) || kept.current.before?.get(shape.rows[line]);
  return { get, want };
}

function Outline({ place, tree, version, onOpen, selected }) {
  const { choices } = place;
  const score = choices.score || tree.scores[0] || null;
  const joined = choices.steps !== "each";
  const asked = { tree: place.tree, task: place.task, score, joined };
  const { value: shape, error } = useShape(asked, version);
  const lines = useLines(asked, shape);
  if (error) return html`<${Notice} error=${error} />`;
  if (!shape) return html`<${Busy} what="reading the tree" />`;
  return html`<${Lines} ...${{ place, tree, shape, lines, asked, selected, onOpen }} key=${place.task} />`;
}

function Lines({ place, tree, shape, lines, asked, selected, onOpen }) {
  const [depth, setDepth] = useState(shape.count > LARGE && place.choices.open !== "all" ? 2 : Infinity);
  const [flipped, setFlipped] = useState(() => new Set());
  const [at, setAt] = useState(0);
  const [window_, setWindow] = useState({ first: 0, last: 0, top: 0, room: 1 });
  const box = useRef(null);
  const isOpen = useCallback((line) => shape.levels[line] < depth !== flipped.has(shape.rows[line]), [shape, depth, flipped]);
  const open = useMemo(() => openLines(shape, isOpen), [shape, isOpen]);
  const found = useSearch(asked, shape);
  const current = Math.min(at, open.length - 1);

  useEffect(() => {
    lines.want(Array.from(open.subarray(window_.first, window_.last)));
  }, [open, window_.first, window_.last, lines.want]);

  const toggle = (line) => {
    const changed = new Set(flipped);
    if (!changed.delete(shape.rows[line])) changed.add(shape.rows[line]);
    setFlipped(changed);
  };
  const moveTo = (row, centre) => {
    const next = Math.max(0, Math.min(open.length - 1, row));
    setAt(next);
    reveal(box.current, next, HEIGHT, centre);
  };
  const show = useReveal(shape, open, flipped, setFlipped, isOpen, moveTo);
  const openLine = (line) => {
    const told = lines.get(line);
    if (told) onOpen(told.last);
  };
  useSelected(asked, shape, selected, show);

  const keys = (event) => {
    const line = open[current];
    const page = Math.max(1, Math.floor(box.current.clientHeight / HEIGHT) - 1);
    const closed = shape.sizes[line] > 1 && !isOpen(line);
    const opened = shape.sizes[line] > 1 && isOpen(line);
    const acts = {
      ArrowDown: () => moveTo(current + 1), ArrowUp: () => moveTo(current - 1), j: () => moveTo(current + 1), k: () => moveTo(current - 1),
      PageDown: () => moveTo(current + page), PageUp: () => moveTo(current - page), Home: () => moveTo(0), End: () => moveTo(open.length - 1),
      ArrowRight: () => (closed ? toggle(line) : moveTo(current + 1)),
      ArrowLeft: () => (opened ? toggle(line) : moveTo(parentRow(shape, open, current))),
      Enter: () => openLine(line), " ": () => openLine(line), n: () => found.next(show, 1, line), p: () => found.next(show, -1, line),
    };
    const act = acts[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    act();
  };
  const row = (number, style) => {
    const line = open[number];
    const told = lines.get(line);
    return html`<${Line}
      key=${shape.rows[line]} id=${`line-${shape.rows[line]}`} ...${{ style, told, number, line, shape }} score=${shape.score}
      current=${number === current} chosen=${told && selected === told.last} hit=${found.lines.has(line)}
      expanded=${shape.sizes[line] > 1 ? isOpen(line) : null}
      onToggle=${() => (moveTo(number), toggle(line))} onOpen=${() => (setAt(number), openLine(line))} />`;
  };
  return html`<section class="outline" aria-label="Tree">
    <${Bar} ...${{ place, tree, shape, depth, found }} show=${(line) => show(line, true)} line=${open[current]}
      onDepth=${(value) => (setDepth(value), setFlipped(new Set()))} />
    <div class="lines-frame">
      <${Scroller} class="lines" role="tree" tabindex="0" aria-label="Lines of the tree" aria-activedescendant=${`line-${shape.rows[open[current]]}`}
        boxRef=${box} count=${open.length} height=${HEIGHT} row=${row} onKeyDown=${keys}
        onWindow=${(first, last, seen) => setWindow({ first, last, ...seen })} />
      <${Glance} ...${{ shape, open, box }} top=${window_.top} room=${window_.room} hits=${found.lines} />
    </div>
  </section>`;
}

function parentRow(shape, open, row) {
  const level = shape.levels[open[row]];
  let at = row;
  while (at > 0 && shape.levels[open[at]] >= level) at -= 1;
  return at;
}

// A function that opens everything around a line and goes there.
function useReveal(shape, open, flipped, setFlipped, isOpen, moveTo) {
  const goal = useRef(null);
  useLayoutEffect(() => {
    if (goal.current == null) return;
    const row = rowOf(open, goal.current);
    if (open[row] === goal.current) {
      goal.current = null;
      moveTo(row, true);
    }
  }, [open]);
  return (line) => {
    const row = rowOf(open, line);
    if (open[row] === line) return moveTo(row, true);
    const changed = new Set(flipped);
    for (let above = 0; above < line; ) {
      const inside = line < above + shape.sizes[above];
      if (inside && !isOpen(above) && !changed.delete(shape.rows[above])) changed.add(shape.rows[above]);
      above += inside ? 1 : shape.sizes[above];
    }
    goal.current = line;
    setFlipped(changed);
  };
}

function rowOf(open, line) {
  let low = 0;
  let high = open.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (open[middle] <= line) low = middle;
    else high = middle - 1;
  }
  return low;
}

// Show the line of the node that is read beside the tree, when it was not chosen here.
function useSelected(asked, shape, selected, show) {
  const shown = useRef(null);
  useEffect(() => {
    if (!selected || shown.current === selected) return;
    shown.current = selected;
    ask("place", { ...asked, node: selected }).then(
      (told) => told.line != null && told.line < shape.count && show(told.line),
      () => {},
    );
  }, [selected, shape]);
}

function useSearch(asked, shape) {
  const [wish, setWish] = useState({ text: "", errors: false });
  const active = wish.text || wish.errors;
  const { value, error, busy } = useAnswer(
    () => (active ? ask("search", { ...asked, text: wish.text, errors: wish.errors || null }) : null),
    [wish.text, wish.errors, shape.version, JSON.stringify(asked)],
  );
  const lines = useMemo(() => new Set(value ? value.lines : []), [value]);
  const next = (show, way, from) => {
    const all = value ? value.lines : [];
    if (!all.length) return;
    const after = way > 0 ? all.find((line) => line > from) : all.findLast((line) => line < from);
    show(after ?? (way > 0 ? all[0] : all.at(-1)), true);
  };
  return { wish, setWish, lines, told: active ? value : null, error, busy: active && busy, next };
}

function Bar({ place, tree, shape, depth, found, show, line, onDepth }) {
  const deepest = useMemo(() => shape.levels.reduce((most, level) => Math.max(most, level), 0), [shape]);
  const [text, setText] = useState("");
  useEffect(() => {
    const timer = setTimeout(() => text !== found.wish.text && found.setWish({ ...found.wish, text }), 250);
    return () => clearTimeout(timer);
  }, [text]);
  const level = Math.min(depth, deepest);
  const jump = (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    found.next(show, event.shiftKey ? -1 : 1, line);
  };
  return html`<div class="bar">
    <div class="bar-row">
      <label class="choice wide"><span class="unseen">search this tree</span><input id="search" type="search" placeholder="search texts  /" value=${text} onInput=${(event) => setText(event.target.value)} onKeyDown=${jump} /></label>
      <label class="tick"><input type="checkbox" checked=${found.wish.errors} onChange=${(event) => found.setWish({ ...found.wish, errors: event.target.checked })} /> errors</label>
      <span class="found" role="status">${found.error ? visible(found.error.message) : found.busy ? "…" : found.told ? hits(found.told) : ""}</span>
      ${found.told?.lines.length > 0 && html`<span class="pair"><button type="button" aria-label="previous hit" onClick=${() => found.next(show, -1, line)}>↑</button><button type="button" aria-label="next hit" onClick=${() => found.next(show, 1, line)}>↓</button></span>`}
    </div>
    <div class="bar-row">
      ${tree.scores.length > 0 && html`<${Choice} label="colour" value=${shape.score} options=${tree.scores.map((s) => [s, s])} onPick=${(value) => choose({ score: value })} />
        <${Legend} low=${fixed(Math.min(0, shape.low), 0)} high=${fixed(Math.max(1, shape.high), 0)} />`}
      <${Choice} label="lines" value=${place.choices.steps || "joined"} options=${[["joined", "runs joined"], ["each", "every step"]]} onPick=${(value) => choose({ steps: value === "joined" ? null : value })} />
      <span class="pair" role="group" aria-label="Forks that are open">
        <button type="button" aria-label="close one level of forks" disabled=${level <= 0} onClick=${() => onDepth(Math.max(0, level - 1))}>−</button>
        <span title="levels of forks that are open">${level}/${deepest}</span>
        <button type="button" aria-label="open one level of forks" disabled=${level >= deepest} onClick=${() => onDepth(level + 1)}>+</button>
        <button type="button" disabled=${depth === Infinity} onClick=${() => onDepth(Infinity)}>all</button>
      </span>
      <span class="quiet">${plural(shape.nodes, "node")}, ${plural(shape.count, "line")}</span>
    </div>
  </div>`;
}

function hits(told) {
  return told.lines.length ? `${count(told.nodes)}${told.more ? "+" : ""} in ${plural(told.lines.length, "line")}` : "nothing found";
}

function Line({ id, style, told, number, line, shape, current, chosen, hit, expanded, onToggle, onOpen }) {
  const level = shape.levels[line];
  const mean = shape.means[line];
  const step = known(mean) ? shape.step(mean) : null;
  const indent = { paddingLeft: `${8 + Math.min(level, DEEPEST) * INDENT}px` };
  return html`<div id=${id} class=${classes("line", current && "current", chosen && "chosen", hit && "hit", step == null ? "snone" : `s${step}`)} style=${style}
    role="treeitem" aria-level=${level + 1} aria-selected=${!!chosen} aria-expanded=${expanded} aria-posinset=${number + 1} onClick=${onOpen}>
    <span class="indent" style=${indent}>${level > DEEPEST && html`<small class="depth">${level}</small>`}</span>
    <span class="twist" aria-hidden="true" onClick=${(event) => (event.stopPropagation(), expanded == null ? onOpen() : onToggle())}>${expanded == null ? "" : expanded ? "▾" : "▸"}</span>
    ${told ? html`<${Texts} told=${told} />` : html`<span class="said pending"></span>`}
    ${told && html`<span class="sums">${told.leaves > 1 && html`<small title="endings at or under this line">${count(told.leaves)}</small>`}${told.simulated > 0 && html`<small class="simulated" title="endings that come after a simulator's answer">sim</small>`}<${Score} value=${told.mean} of=${told.scored} own=${told.span === 1 && told.below === 0} step=${step} /></span>`}
  </div>`;
}

function Texts({ told }) {
  const parts = told.parts;
  const gap = told.span - parts.length;
  return html`<span class="said">
    ${parts.map(
      (part, at) => html`${at === parts.length - 1 && gap > 0 && html`<small class="gap">${plural(gap, "step")} more</small>`}<span key=${part.row} class=${classes("bit", part.kind)}
        ><${Mark} kind=${part.kind} origin=${part.origin} edited=${part.edited} />${part.keep != null && html`<small class="keep" title="keeps so many tokens of the step above">@${part.keep}</small>`}<bdi>${oneLine(part.text) || (part.error ? "" : "(no text)")}${part.length > part.text.length ? "…" : ""}</bdi>${part.error && html`<span class="bad">${oneLine(part.error)}</span>`}</span>`,
    )}
  </span>`;
}

// All open lines at a glance: their scores as bands, what is in sight as a frame. A picture for the eye and the mouse only.
function Glance({ shape, open, box, top, room, hits: marked }) {
  const canvas = useRef(null);
  const [size, setSize] = useState({ width: 0, height: 0, theme: 0 });
  useEffect(() => {
    const look = () => canvas.current && setSize((now) => ({ width: canvas.current.clientWidth, height: canvas.current.clientHeight, theme: now.theme + 1 }));
    const sizes = new ResizeObserver(look);
    sizes.observe(canvas.current);
    addEventListener("themechange", look);
    return () => (sizes.disconnect(), removeEventListener("themechange", look));
  }, []);
  useEffect(() => {
    if (size.height) paint(canvas.current, size, shape, open, marked);
  }, [size, shape, open, marked]);
  const all = open.length * HEIGHT || 1;
  const frame = { top: `${(100 * top) / all}%`, height: `${Math.min(100, (100 * room) / all)}%` };
  const jump = (event) => {
    if (event.buttons !== 1) return;
    const edge = canvas.current.getBoundingClientRect();
    box.current.scrollTop = ((event.clientY - edge.top) / edge.height) * all - room / 2;
  };
  return html`<div class="map" aria-hidden="true" onPointerDown=${jump} onPointerMove=${jump}><canvas ref=${canvas}></canvas><i style=${frame}></i></div>`;
}

function paint(canvas, size, shape, open, marked) {
  const dots = devicePixelRatio || 1;
  canvas.width = size.width * dots;
  canvas.height = size.height * dots;
  const brush = canvas.getContext("2d");
  const style = getComputedStyle(document.documentElement);
  const colours = Array.from({ length: 11 }, (_, step) => style.getPropertyValue(`--s${step}`));
  const none = style.getPropertyValue("--snone");
  const rows = Math.min(open.length, canvas.height);
  const tall = Math.min(canvas.height / rows, 6 * dots);
  for (let row = 0; row < rows; row += 1) {
    const from = Math.floor((row * open.length) / rows);
    const to = Math.max(from + 1, Math.floor(((row + 1) * open.length) / rows));
    let sum = 0;
    let of = 0;
    let hit = false;
    for (let at = from; at < to; at += 1) {
      const mean = shape.means[open[at]];
      if (!Number.isNaN(mean)) (sum += mean), (of += 1);
      hit ||= marked.has(open[at]);
    }
    const left = Math.min(shape.levels[open[from]], DEEPEST) / DEEPEST / 2;
    brush.fillStyle = of ? colours[shape.step(sum / of)] : none;
    brush.fillRect(left * canvas.width, (row * canvas.height) / rows, canvas.width * (1 - left), Math.max(1, tall - (tall > 2 ? dots : 0)));
    if (hit) {
      brush.fillStyle = style.getPropertyValue("--hit");
      brush.fillRect(0, (row * canvas.height) / rows, 4 * dots, Math.max(2 * dots, tall));
    }
  }
}

export { Outline };
