// A fork from the page: choose a change at a point, draw, and watch the effect arrive.
import { html, useEffect, useRef, useState } from "./base.js";
import { ask, live, post, start } from "./data.js";
import { EffectCard } from "./effect.js";
import { Choice, Notice } from "./parts.js";
import { count, duration, oneLine, plural, tokenName, visible } from "./text.js";

const CHANGES = [
  ["remove", "take this token away"],
  ["replace", "put another text in its place"],
  ["insert", "put a text behind it"],
  ["ban", "forbid what comes next"],
  ["force", "say a text next"],
  ["set", "sample with another setting"],
  ["none", "nothing: the control alone"],
];
const WHOLE = ["insert", "ban", "force", "set", "none"];
const AFTER = { replace: "text in its place", insert: "text to put in", ban: "text that may not come next", force: "text to say next", set: "setting, such as temperature=0" };

// What the command line would be told.
function written(kind, text) {
  if (kind === "none") return [];
  if (kind === "remove") return ["remove:1"];
  if (kind === "replace") return [`replace:1:${text}`];
  return [`${kind}:${text}`];
}

function ForkForm({ place, node, token, onBusy }) {
  const [kind, setKind] = useState(token == null ? "force" : "remove");
  const [text, setText] = useState("");
  const [draws, setDraws] = useState(32);
  const [seed, setSeed] = useState(0);
  const [job, setJob] = useState(null);
  const [error, setError] = useState(null);
  const running = job?.state === "running";
  useEffect(() => {
    if (!running) return undefined;
    const timer = setTimeout(() => ask("fork", { job: job.job }).then(setJob, setError), 350);
    return () => clearTimeout(timer);
  }, [job]);
  useEffect(() => onBusy?.(running), [running]);
  if (!live || !start.forking) return html`<${CannotFork} />`;
  const begin = (event) => {
    event.preventDefault();
    setError(null);
    const body = { tree: place.tree, node: node.id, token, changes: written(kind, text), draws, seed, score: place.choices.score || "success" };
    post("fork", body).then(setJob, setError);
  };
  const options = token == null ? CHANGES.filter(([key]) => WHOLE.includes(key)) : CHANGES;
  return html`<div class="fork">
    <form onSubmit=${begin}>
      <p class="quiet">${point(node, token)} The control keeps everything; both arms run on with the same noise, by ${visible(start.forking.policy)}.</p>
      <div class="fields">
        <${Choice} label="change" value=${kind} options=${options} onPick=${setKind} />
        ${AFTER[kind] && html`<label class="choice wide"><span>${AFTER[kind]}</span><input type="text" required value=${text} onInput=${(event) => setText(event.target.value)} autocomplete="off" spellcheck=${false} /></label>`}
        <label class="choice short"><span>draws</span><input type="number" min="1" max=${start.forking.most} required value=${draws} onInput=${(event) => setDraws(Number(event.target.value))} /></label>
        <label class="choice short"><span>seed</span><input type="number" min="0" required value=${seed} onInput=${(event) => setSeed(Number(event.target.value))} /></label>
        <button type="submit" class="main" disabled=${running}>Draw ${count(draws)}</button>
      </div>
    </form>
    ${error && html`<${Notice} error=${error} />`}
    ${job && html`<${Progress} job=${job} onStop=${() => post("stop", { job: job.job }).then(setJob, setError)} />`}
    ${job?.card && html`<${EffectCard} card=${job.card} tree=${place.tree} task=${place.task} busy=${running} />`}
  </div>`;
}

function point(node, token) {
  if (token == null) return `Behind this ${node.kind}.`;
  return `Behind token ${token}, “${tokenName(node.tokens[token - 1])}”.`;
}

function CannotFork() {
  return html`<p class="quiet">${live ? html`This viewer only reads. Start it with <code>--policy SPEC</code> to fork from here.` : "This is a shared file. The viewer itself forks from here: refork view TREE --policy SPEC."}</p>`;
}

function Progress({ job, onStop }) {
  const words = { running: `drawing: ${oneLine(job.stage)}`, done: "done", stopped: "stopped; what is drawn stays", failed: "failed" };
  return html`<div class="progress">
    <progress max=${job.total || 1} value=${job.done} aria-label="Draws of this fork"></progress>
    <p role="status">${words[job.state]} · ${count(job.done)} of ${plural(job.total, "draw")} · ${duration(job.seconds)}${job.tokens != null && job.state === "running" ? ` · ${count(job.tokens)} tokens` : ""}</p>
    ${job.state === "running" && html`<button type="button" onClick=${onStop}>Stop</button>`}
    ${job.error && html`<${Notice} error=${job.error} />`}
  </div>`;
}

// A panel under a token or a step; the focus goes there and comes back.
function Panel({ name, onClose, children }) {
  const box = useRef(null);
  const before = useRef(null);
  const back = () => before.current?.focus?.();
  useEffect(() => {
    before.current = document.activeElement;
    box.current.focus();
    return back;
  }, []);
  // At once, or a key pressed before the panel has gone would be nobody's.
  const close = () => {
    back();
    onClose();
  };
  const keys = (event) => {
    if (event.key !== "Escape") return;
    event.stopPropagation();
    close();
  };
  return html`<section class="panel" ref=${box} tabindex="-1" aria-label=${name} onKeyDown=${keys}>
    <header><h3>${name}</h3><button type="button" class="plain" aria-label="Close" onClick=${close}>✕</button></header>
    ${children}
  </section>`;
}

export { ForkForm, Panel };
