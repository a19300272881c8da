// The lists one begins with: trees, and the tasks of one tree.
import { html, useAnswer, useEffect, useState } from "./base.js";
import { ask } from "./data.js";
import { address, choose } from "./place.js";
import { Busy, Choice, Notice, Score, known, scale } from "./parts.js";
import { bytes, count, oneLine, plural, visible } from "./text.js";

const PAGE = 100;
const ORDERS = [
  ["written", "as written"],
  ["lowest", "lowest score first"],
  ["highest", "highest score first"],
  ["largest", "largest first"],
];

function Trees() {
  const { value, error } = useAnswer(() => ask("trees"), []);
  if (error) return html`<main class="page" id="main"><h1>Trees</h1><${Notice} error=${error} /></main>`;
  if (!value) return html`<main class="page" id="main"><h1>Trees</h1><${Busy} /></main>`;
  return html`<main class="page" id="main">
    <h1>Trees</h1>
    <div class="scroll" tabindex="0" role="region" aria-label="Trees">
      <table class="list">
        <thead>
          <tr><th scope="col">tree</th><th scope="col" class="n">tasks</th><th scope="col" class="n">nodes</th><th scope="col" class="n">size</th><th scope="col">last written</th></tr>
        </thead>
        <tbody>
          ${value.trees.map(
            (one) => html`<tr key=${one.name}>
              <td>${one.error ? html`${visible(one.name)} <span class="bad">${visible(one.error)}</span>` : html`<a class="whole" href=${address({ tree: one.name })}>${visible(one.name)}</a>`}</td>
              <td class="n">${count(one.tasks)}</td>
              <td class="n">${count(one.nodes)}</td>
              <td class="n">${one.bytes == null ? "–" : bytes(one.bytes)}</td>
              <td>${one.changed ? new Date(1000 * one.changed).toLocaleString() : "–"}</td>
            </tr>`,
          )}
        </tbody>
      </table>
    </div>
  </main>`;
}

function Tasks({ place, tree, version }) {
  const { choices } = place;
  const start = Number(choices.start || 0);
  const asked = {
    tree: place.tree, text: choices.text, world: choices.world, low: number(choices.low), high: number(choices.high),
    forked: choices.forked ? true : null, order: choices.order || "written", score: choices.score, start, count: PAGE,
  };
  const { value, error } = useAnswer(() => ask("tasks", asked), [version, JSON.stringify(asked)]);
  const means = value ? value.tasks.map((one) => one.mean).filter(known) : [];
  const step = scale(Math.min(0, ...means), Math.max(0, ...means));
  return html`<main class="page" id="main">
    <h1>${visible(place.tree)}</h1>
    <p class="quiet">
      ${plural(tree.nodes, "node")}${tree.policies.length > 0 && html` · sampled by ${tree.policies.map(visible).join(", ")}`}
    </p>
    <${Filters} choices=${choices} tree=${tree} />
    ${error && html`<${Notice} error=${error} />`}
    ${!value && !error && html`<${Busy} />`}
    ${value &&
    html`<p class="quiet" role="status">${value.total === value.all ? plural(value.all, "task") : `${count(value.total)} of ${plural(value.all, "task")}`}</p>
      <${Table} rows=${value.tasks} place=${place} score=${asked.score || tree.scores[0]} step=${step} />
      <${Pages} total=${value.total} start=${start} />`}
  </main>`;
}

function Table({ rows, place, score, step }) {
  if (!rows.length) return html`<${Notice}>No task fits. Take a part of the filter away.<//>`;
  const choices = { score: place.choices.score };
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Tasks">
    <table class="list tasks">
      <thead>
        <tr>
          <th scope="col">task</th>
          <th scope="col">world</th>
          <th scope="col" class="n">nodes</th>
          <th scope="col" class="n">endings</th>
          <th scope="col" class="n">forks</th>
          <th scope="col" class="n">${score ? visible(score) : "score"}</th>
        </tr>
      </thead>
      <tbody>
        ${rows.map(
          (one) => html`<tr key=${one.id}>
            <td class="said"><a class="whole" href=${address({ tree: place.tree, task: one.id, choices })}><bdi>${oneLine(one.text) || "(no text)"}</bdi></a></td>
            <td>${one.world ? visible(one.world) : "–"}</td>
            <td class="n">${count(one.nodes)}</td>
            <td class="n">${count(one.leaves)}${one.simulated > 0 && html`<small> (${count(one.simulated)} simulated)</small>`}</td>
            <td class="n">${one.forks ? count(one.forks) : "–"}</td>
            <td class="n"><${Score} value=${one.mean} of=${one.scored} step=${known(one.mean) ? step(one.mean) : 0} /></td>
          </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
}

function Filters({ choices, tree }) {
  const [text, setText] = useState(choices.text || "");
  useEffect(() => {
    const timer = setTimeout(() => text !== (choices.text || "") && choose({ text, start: null }), 200);
    return () => clearTimeout(timer);
  }, [text]);
  const pick = (name) => (value) => choose({ [name]: value, start: null });
  return html`<form class="filters" role="search" onSubmit=${(event) => event.preventDefault()}>
    <label class="choice wide"><span>text</span><input id="search" type="search" value=${text} onInput=${(event) => setText(event.target.value)} placeholder="words of the task" /></label>
    ${tree.worlds.length > 0 && html`<${Choice} label="world" value=${choices.world || ""} options=${[["", "all"], ...tree.worlds.map((w) => [w, w])]} onPick=${pick("world")} />`}
    ${tree.scores.length > 0 &&
    html`<${Choice} label="score" value=${choices.score || tree.scores[0]} options=${tree.scores.map((s) => [s, s])} onPick=${pick("score")} />
      <label class="choice short"><span>from</span><input type="number" step="any" value=${choices.low || ""} onChange=${(event) => pick("low")(event.target.value)} /></label>
      <label class="choice short"><span>to</span><input type="number" step="any" value=${choices.high || ""} onChange=${(event) => pick("high")(event.target.value)} /></label>`}
    <${Choice} label="order" value=${choices.order || "written"} options=${ORDERS} onPick=${pick("order")} />
    <label class="tick"><input type="checkbox" checked=${!!choices.forked} onChange=${(event) => pick("forked")(event.target.checked ? "1" : null)} /> with forks</label>
  </form>`;
}

function Pages({ total, start }) {
  if (total <= PAGE) return null;
  return html`<nav class="pages" aria-label="Pages">
    <button type="button" disabled=${start === 0} onClick=${() => choose({ start: Math.max(0, start - PAGE) || null })}>previous</button>
    <span>${count(start + 1)} to ${count(Math.min(total, start + PAGE))} of ${count(total)}</span>
    <button type="button" disabled=${start + PAGE >= total} onClick=${() => choose({ start: start + PAGE })}>next</button>
  </nav>`;
}

function number(text) {
  return text == null || text === "" || Number.isNaN(Number(text)) ? null : Number(text);
}

export { Trees, Tasks };
