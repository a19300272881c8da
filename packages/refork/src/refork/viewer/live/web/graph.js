// The graph of merged states: steps that saw the same state leave one node.
import { html, useAnswer, useMemo, useState, classes } from "./base.js";
import { ask } from "./data.js";
import { address, choose } from "./place.js";
import { Busy, Choice, Legend, Notice, Score, known, scale } from "./parts.js";
import { count, fixed, oneLine, plural, signed, visible } from "./text.js";

const COLUMN = 92;
const ROW = 34;
const EDGE = 56;

function Graph({ place, tree, version }) {
  const score = place.choices.score || tree.scores[0] || null;
  const { value, error } = useAnswer(() => ask("graph", { tree: place.tree, task: place.task, score }), [place.tree, place.task, score, version]);
  return html`<main class="page wide-page" id="main">
    <h1>Merged states</h1>
    <p class="quiet">Rollouts of this task that saw the same state pass through one node. Colour: mean outcome of its visits. Size: visits. Rollouts that a change led to are left out.</p>
    ${tree.scores.length > 0 && html`<div class="filters"><${Choice} label="outcome" value=${score} options=${tree.scores.map((s) => [s, s])} onPick=${(picked) => choose({ score: picked })} /></div>`}
    ${error && html`<${Notice} error=${error} />`}
    ${!value && !error && html`<${Busy} what="merging states" />`}
    ${value && html`<${Drawn} value=${value} place=${place} />`}
  </main>`;
}

function Drawn({ value, place }) {
  const [at, setAt] = useState(null);
  const range = useMemo(() => {
    const values = value.states.map((one) => one.value).filter(known);
    return [Math.min(0, ...values), Math.max(0, ...values)];
  }, [value]);
  const step = scale(...range);
  return html`<p class="quiet" role="status">${plural(value.rollouts, "rollout")}, ${plural(value.steps, "step")}, ${plural(value.all, "node")}${value.all > value.states.length ? `; the ${value.states.length} most visited are drawn` : ""}. <${Legend} low=${fixed(range[0], 0)} high=${fixed(Math.max(1, range[1]), 0)} /></p>
    <${Picture} ...${{ value, step, at, setAt }} />
    ${at != null && html`<${State} ...${{ value, at, setAt, step, place }} />`}
    <h2>States</h2>
    <${States} ...${{ value, step, at, setAt }} />`;
}

// Places in pixels: a column for each distance from the start.
function placed(states) {
  const tallest = Math.max(...Object.values(Object.groupBy(states, (one) => one.column)).map((column) => column.length));
  const height = Math.max(200, tallest * ROW) + 2 * EDGE;
  const columns = Math.max(...states.map((one) => one.column)) + 1;
  const points = states.map((one) => ({ x: EDGE + one.column * COLUMN + COLUMN / 2, y: height / 2 + (one.place * (height - 2 * EDGE)) / 2 }));
  return { points, height, width: columns * COLUMN + 2 * EDGE };
}

function Picture({ value, step, at, setAt }) {
  const { states, edges } = value;
  const { points, height, width } = useMemo(() => placed(states), [states]);
  const most = Math.max(...edges.map((one) => one.visits), 1);
  const largest = Math.max(...states.map((one) => one.visits), 1);
  const size = (one) => 4 + 10 * Math.sqrt(one.visits / largest);
  return html`<div class="graph" tabindex="0" role="region" aria-label="Picture of the graph; the table below has the same">
    <svg viewBox=${`0 0 ${width} ${height}`} width=${width} height=${height} role="img" aria-label=${`${states.length} states, ${edges.length} edges`}>
      <g class="edges">
        ${edges.map((one, number) => html`<path key=${number} d=${curve(points[one.source], points[one.target])} stroke-width=${0.8 + (4 * one.visits) / most} class=${classes(at != null && (one.source === at || one.target === at) && "lit", at != null && one.source !== at && one.target !== at && "dim")} />`)}
      </g>
      ${states.map((one, number) => {
        const { x, y } = points[number];
        const said = `${oneLine(one.name).slice(0, 120)}: ${fixed(one.value)}, ${plural(one.visits, "visit")}`;
        return html`<g key=${number} class=${classes("state", known(one.value) ? `s${step(one.value)}` : "snone", one.kind, at === number && "picked")} onClick=${() => setAt(at === number ? null : number)}>
          <title>${said}</title>
          ${one.kind === "end" ? html`<rect x=${x - size(one)} y=${y - size(one)} width=${2 * size(one)} height=${2 * size(one)} rx="3" />` : html`<circle cx=${x} cy=${y} r=${size(one)} />`}
          ${one.column === 0 && html`<text x=${x} y=${y - size(one) - 6} class="mid">start</text>`}
          ${one.kind === "end" && html`<text x=${x} y=${y - size(one) - 6} class="mid">${oneLine(one.name)}</text>`}
        </g>`;
      })}
    </svg>
  </div>`;
}

function curve(from, to) {
  if (from === to) return `M${from.x} ${from.y} c-24 -34 24 -34 0 0`;
  const lift = to.x > from.x ? 0 : Math.min(70, 34 + Math.abs(to.x - from.x) / 6);
  const middle = (from.x + to.x) / 2;
  return lift ? `M${from.x} ${from.y} C${from.x} ${from.y - lift} ${to.x} ${to.y - lift} ${to.x} ${to.y}` : `M${from.x} ${from.y} C${middle} ${from.y} ${middle} ${to.y} ${to.x} ${to.y}`;
}

function State({ value, at, setAt, step, place }) {
  const one = value.states[at];
  const out = value.edges.filter((edge) => edge.source === at).sort((a, b) => b.visits - a.visits);
  return html`<section class="card" aria-label="State">
    <header class="row"><h2>${one.kind === "end" ? "End" : "State"} <${Score} value=${one.value} of=${one.visits} step=${known(one.value) ? step(one.value) : 0} /></h2><button type="button" class="plain" aria-label="Close" onClick=${() => setAt(null)}>✕</button></header>
    <p class="state-text"><bdi>${visible(one.name)}</bdi></p>
    <p class="quiet">${plural(one.visits, "visit")} by ${plural(one.trajectories, "rollout")}; <a href=${address({ ...place, view: "tree", choices: { node: one.leaf } })}>read one of them</a></p>
    ${out.length > 0 && html`<ul class="outs">${out.slice(0, 12).map((edge) => html`<li key=${edge.target}><button type="button" class="quiet-button" onClick=${() => setAt(edge.target)}>${count(edge.visits)}× to ${oneLine(value.states[edge.target].name).slice(0, 70)}</button> <span class="n">${signed(edge.gain)}</span></li>`)}</ul>`}
  </section>`;
}

function States({ value, step, at, setAt }) {
  const order = value.states.map((_, number) => number).sort((a, b) => value.states[b].visits - value.states[a].visits);
  return html`<div class="scroll tall" tabindex="0" role="region" aria-label="States by visits"><table class="list">
    <thead><tr><th scope="col">state</th><th scope="col" class="n">visits</th><th scope="col" class="n">rollouts</th><th scope="col" class="n">ways out</th><th scope="col" class="n">value</th></tr></thead>
    <tbody>
      ${order.map((number) => {
        const one = value.states[number];
        return html`<tr key=${number} class=${at === number ? "picked" : ""}>
          <td class="said"><button type="button" class="link" onClick=${() => setAt(number)}>${oneLine(one.name) || "(no text)"}</button></td><td class="n">${count(one.visits)}</td><td class="n">${count(one.trajectories)}</td>
          <td class="n">${count(value.edges.filter((edge) => edge.source === number).length)}</td><td class="n"><${Score} value=${one.value} of=${one.visits} step=${known(one.value) ? step(one.value) : 0} /></td>
        </tr>`;
      })}
    </tbody>
  </table></div>`;
}

export { Graph };
