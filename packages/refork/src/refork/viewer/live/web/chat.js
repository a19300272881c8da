// One walk from its task to an ending, read like a chat; tokens coloured, and a place to fork at each.
import { html, useAnswer, useEffect, useMemo, useRef, useState, classes } from "./base.js";
import { ask, node as load } from "./data.js";
import { ForkForm, Panel } from "./fork.js";
import { address, choose } from "./place.js";
import { Busy, Choice, Legend, Mark, Notice, Score, SPOKEN } from "./parts.js";
import { TokenFacts, Tokens, legendOf, nameOf, rangeOf } from "./tokens.js";
import { count, duration, fixed, oneLine, percent, plural, tokenName, visible } from "./text.js";

const FIRST = 200;
const PLAIN = "plain";
const COLUMNS = ["logprobs", "entropy", "logprobs_t1", "ref_logprobs"];

function Chat({ place, tree, version, leaf, onBack }) {
  const { value, error } = useAnswer(() => ask("walk", { tree: place.tree, node: leaf }), [place.tree, leaf]);
  if (error) return html`<section class="chat"><${Notice} error=${error} /></section>`;
  if (!value) return html`<section class="chat"><${Busy} what="reading the trajectory" /></section>`;
  return html`<${Walk} key=${value.leaf} ...${{ place, tree, version, onBack }} walk=${value} />`;
}

function Walk({ place, tree, version, walk, onBack }) {
  const [nodes, setNodes] = useState(() => new Map());
  const [most, setMost] = useState(FIRST);
  const [open, setOpen] = useState(null);
  const box = useRef(null);
  const steps = walk.steps.slice(0, most);
  const loaded = useMemo(() => steps.map((step) => nodes.get(step.id)).filter(Boolean), [nodes, most]);
  const columns = useMemo(() => columnsOf(loaded), [loaded]);
  const wished = place.choices.tokens || "logprobs";
  const column = wished === PLAIN || !columns.includes(wished) ? PLAIN : wished;
  const range = useMemo(() => rangeOf(loaded, column), [loaded, column]);
  const want = (id) => load(place.tree, version, id).then((one) => setNodes((now) => new Map(now).set(id, one)), () => {});
  useEffect(() => {
    for (const id of nodes.keys()) want(id);
  }, [version]);
  const cycle = () => choose({ tokens: after([PLAIN, ...columns], column) });
  const keys = (event) => {
    if (event.key === "c" && !/INPUT|SELECT|TEXTAREA/.test(event.target.tagName)) cycle();
  };
  return html`<section class="chat" aria-label="Walk" onKeyDown=${keys}>
    <${Head} ...${{ place, walk, onBack, column, columns, range }} last=${nodes.get(walk.leaf)} />
    <ol class="steps-list" ref=${box} tabindex="0" aria-label="Steps of the trajectory">
      ${steps.map((step, at) => html`<${Step} key=${step.id} ...${{ step, place, column, range, want, open, setOpen }} node=${nodes.get(step.id)} before=${steps[at - 1]?.id} next=${steps[at + 1]} box=${box} />`)}
      ${walk.steps.length > most && html`<li class="more"><button type="button" onClick=${() => setMost(most + FIRST)}>${count(walk.steps.length - most)} more steps</button></li>`}
    </ol>
  </section>`;
}

// Columns that some node has a value in, the usual ones first.
function columnsOf(nodes) {
  const found = new Set(nodes.flatMap((one) => Object.keys(one.values || {})));
  return [...COLUMNS.filter((name) => found.has(name)), ...[...found].filter((name) => !COLUMNS.includes(name)).sort()];
}

function after(list, item) {
  return list[(list.indexOf(item) + 1) % list.length];
}

function Head({ place, walk, last, onBack, column, columns, range }) {
  const colours = [[PLAIN, "plain"], ...columns.map((name) => [name, nameOf(name)])];
  const legend = column === PLAIN ? null : legendOf(column, range);
  const scores = Object.entries(last?.scores || {});
  return html`<header class="bar">
    <div class="bar-row">
      <button type="button" class="back" onClick=${onBack}>← tree</button>
      <h2>Trajectory to <code>${walk.leaf.slice(0, 8)}</code></h2>
      <span class="quiet">${plural(walk.steps.length, "step")}</span>
      ${scores.map(([name, value]) => html`<span key=${name} class="named">${visible(name)} <${Score} value=${value} own=${true} step=${Math.round(10 * Math.min(1, Math.max(0, value)))} /></span>`)}
    </div>
    <div class="bar-row">
      <${Choice} label="tokens" value=${column} options=${colours} onPick=${(value) => choose({ tokens: value })} />
      ${legend && html`<${Legend} ...${legend} />`}
    </div>
  </header>`;
}

function Step({ step, node, before, next, place, column, range, want, open, setOpen, box }) {
  const item = useRef(null);
  useEffect(() => {
    const watch = new IntersectionObserver(([seen]) => seen.isIntersecting && (watch.disconnect(), want(step.id)), { root: box.current, rootMargin: "600px" });
    watch.observe(item.current);
    return () => watch.disconnect();
  }, [step.id]);
  const keep = next ? step.keep : null;
  const simulated = node?.origin === "simulated";
  return html`<li ref=${item} class=${classes("step", step.kind, simulated && "simulated", node?.error && "failed")}>
    <div class="step-head">
      <span class="who"><${Mark} kind=${step.kind} origin=${node?.origin} edited=${node?.edited} /><span aria-hidden="true">${node?.edited ? "edit" : simulated ? "simulated" : SPOKEN[step.kind]}</span></span>
      ${node && html`<${StepFacts} ...${{ node, open, setOpen }} />`}
    </div>
    ${node ? html`<${Body} ...${{ node, before, keep, place, column, range, open, setOpen }} />` : html`<div class="waiting" aria-hidden="true"></div>`}
  </li>`;
}

function StepFacts({ node, open, setOpen }) {
  const shown = open?.id === node.id && open.token == null;
  const cost = node.cost || {};
  const facts = [
    node.policy, node.count != null ? plural(node.count, "token") : null, cost.seconds ? duration(cost.seconds) : null,
    node.finish && node.finish !== "stop" ? node.finish : null, node.role && node.role !== "user" && node.role !== "assistant" ? node.role : null,
  ];
  return html`<span class="quiet facts-line">${facts.filter(Boolean).map(visible).join(" · ")}<button type="button" class="plain dots" aria-label="More of this step, and forks behind it" aria-expanded=${shown} onClick=${() => setOpen(shown ? null : { id: node.id, token: null })}>⋯</button></span>`;
}

function Body({ node, before, keep, place, column, range, open, setOpen }) {
  const [full, setFull] = useState(node);
  useEffect(() => setFull(node), [node]);
  const mine = open?.id === node.id ? open : null;
  const more = () =>
    ask("page", { tree: place.tree, node: node.id, start: full.next }).then((told) => setFull(joined(full, told)), () => {});
  const pick = (token) => setOpen(mine?.token === token ? null : { id: node.id, token });
  const empty = !(full.tokens ? full.tokens.length : full.text);
  return html`
    ${full.tokens?.length
      ? html`<${Tokens} node=${full} ...${{ keep, column, range }} onPick=${pick} picked=${mine?.token ?? null} name=${`${SPOKEN[node.kind]}, tokens: arrow keys move, Enter opens one`} />`
      : html`<div class="plain-text"><bdi>${visible(full.text || "")}</bdi>${empty && html`<span class="quiet">(no text)</span>`}</div>`}
    ${full.next != null && html`<button type="button" class="quiet-button" onClick=${more}>show more of ${full.tokens ? plural(node.count, "token") : plural(node.length, "character")}</button>`}
    ${full.left_out && html`<p class="quiet">the rest of this step is not in this file</p>`}
    ${node.error && html`<p class="bad">${visible(node.error)}</p>`}
    ${!full.tokens && node.kind !== "verdict" && html`<${ForkPlace} ...${{ node, before, setOpen }} />`}
    <${Foot} ...${{ node, keep, place }} />
    ${mine && html`<${Opened} ...${{ node: full, mine, place }} onClose=${() => setOpen(null)} />`}
  `;
}

// Where a step whose text is not split into tokens can be forked.
function ForkPlace({ node, before, setOpen }) {
  const inside = node.kind === "action";
  const at = inside ? before : node.id;
  const why = node.count == null ? "no token ids are recorded" : "its tokens are not told apart";
  return html`<p class="quiet fork-place">
    ${inside ? `${why}, so no fork begins inside this turn` : `forks begin at the end of this message`}${at &&
    html` <button type="button" class="quiet-button" onClick=${() => setOpen({ id: at, token: null })}>${inside ? "fork where it begins" : "fork here"}</button>`}
  </p>`;
}

function joined(before, told) {
  if (!told.tokens) return { ...before, text: before.text + told.text, next: told.next };
  const values = Object.fromEntries(Object.entries(told.values).map(([name, rest]) => [name, [...(before.values[name] || []), ...rest]]));
  return { ...before, tokens: [...before.tokens, ...told.tokens], ids: [...before.ids, ...told.ids], values, next: told.next };
}

function Foot({ node, keep, place }) {
  const scores = Object.entries(node.scores);
  const forks = node.branches.reduce((sum, one) => sum + one.count, 0);
  const choices = { ...place.choices, at: node.id };
  const cut = keep != null && keep < (node.count ?? 0);
  if (!cut && !scores.length && forks < 2 && !node.arms) return null;
  return html`<div class="foot">
    ${cut && html`<span class="keep">the trajectory keeps ${plural(keep, "token")}</span>`}
    ${scores.map(([name, value]) => html`<span key=${name} class="named">${visible(name)} ${fixed(value)}</span>`)}
    ${forks > 1 && html`<a href=${address({ ...place, view: "diff", choices })}>${count(forks)} branches</a>`}
    ${node.arms > 0 && html`<a href=${address({ ...place, view: "effects", choices: { at: node.id } })}>${plural(node.arms, "arm")}</a>`}
  </div>`;
}

function Opened({ node, mine, place, onClose }) {
  const token = mine.token;
  if (token != null) {
    return html`<${Panel} name=${`Token “${tokenName(node.tokens[token])}”`} onClose=${onClose} key=${token}>
      <${TokenFacts} node=${node} at=${token} />
      <h4>Fork here</h4>
      <${ForkForm} place=${place} node=${node} token=${token + 1} />
    <//>`;
  }
  return html`<${Panel} name=${`Step ${node.id.slice(0, 8)}`} onClose=${onClose}>
    <${NodeFacts} node=${node} place=${place} />
    ${node.kind !== "verdict" && html`<h4>Fork behind this step</h4><${ForkForm} place=${place} node=${node} token=${null} />`}
  <//>`;
}

function NodeFacts({ node, place }) {
  const { value } = useAnswer(() => ask("said", { tree: place.tree, node: node.id }), [node.id]);
  const facts = [
    ["id", node.id], ["policy", node.policy], ["weights", node.weights?.slice(0, 16)], ["settings", node.settings && JSON.stringify(node.settings)],
    ["noise (seed · draw · turn)", node.noise], ["finish", node.finish], ["origin", node.origin], ["state", node.state_key?.slice(0, 24)],
    ["cost", Object.keys(node.cost).length ? JSON.stringify(node.cost) : null], ...Object.entries(node.note),
  ];
  return html`<dl class="facts">
      ${facts.filter(([, told]) => told != null && told !== "").map(([name, told]) => html`<div key=${name}><dt>${visible(name)}</dt><dd>${visible(String(told))}</dd></div>`)}
    </dl>
    ${value?.scores.length > 0 && html`<${Said} scores=${value.scores} />`}`;
}

// Every version of every score of one node.
function Said({ scores }) {
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Scores of this step"><table class="list small">
    <thead><tr><th scope="col">score</th><th scope="col">by</th><th scope="col" class="n">value</th><th scope="col">reason</th></tr></thead>
    <tbody>
      ${scores.map(
        (one, at) => html`<tr key=${at} class=${one.retired ? "retired" : ""}>
          <td>${visible(one.name)}</td><td>${visible(one.label)}${one.retired && html` <span class="caution">retired: ${visible(one.retired)}</span>`}</td>
          <td class="n">${one.value != null ? fixed(one.value, 3) : `mean ${fixed(one.array_mean, 3)}`}</td><td><bdi>${oneLine(one.reason || "")}</bdi></td>
        </tr>`,
      )}
    </tbody>
  </table></div>`;
}

export { Chat };
