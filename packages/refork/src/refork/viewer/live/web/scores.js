// The versions of a score side by side: who gave it, and where they disagree.
import { html, useAnswer, classes } from "./base.js";
import { ask } from "./data.js";
import { address, choose } from "./place.js";
import { Busy, Choice, Notice, SPOKEN } from "./parts.js";
import { count, fixed, oneLine, plural, visible } from "./text.js";

const PAGE = 100;

function Scores({ place, tree, version }) {
  const names = tree.all_scores;
  const name = place.choices.name || (names.includes(place.choices.score) ? place.choices.score : names.includes("success") ? "success" : names[0]);
  const { value, error } = useAnswer(() => (name ? ask("versions", { tree: place.tree, name, count: PAGE }) : null), [place.tree, name, version]);
  if (!name) return html`<main class="page" id="main"><h1>Scores</h1><${Notice}>Nobody has scored this tree yet.<//></main>`;
  return html`<main class="page" id="main">
    <h1>Versions of a score</h1>
    <p class="quiet">A score is never overwritten: every producer's stands beside the others, for the whole tree.</p>
    <div class="filters"><${Choice} label="score" value=${name} options=${names.map((one) => [one, one])} onPick=${(picked) => choose({ name: picked })} /></div>
    ${error && html`<${Notice} error=${error} />`}
    ${!value && !error && html`<${Busy} />`}
    ${value && html`<${Versions} value=${value} /><${Differences} value=${value} place=${place} />`}
  </main>`;
}

function Versions({ value }) {
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Producers"><table class="list">
    <thead><tr><th scope="col">producer</th><th scope="col" class="n">steps</th><th scope="col" class="n">mean</th><th scope="col">state</th><th scope="col">configuration</th></tr></thead>
    <tbody>
      ${value.versions.map(
        (one) => html`<tr key=${one.producer} class=${one.retired ? "retired" : ""}>
          <th scope="row">${visible(one.label)} <code>${one.producer.slice(0, 8)}</code></th>
          <td class="n">${count(one.count + one.arrays)}</td>
          <td class="n">${one.count ? fixed(one.mean, 3) : "per token"}</td>
          <td>${one.retired ? html`<span class="caution">retired: ${visible(one.retired)}</span>` : "live"}</td>
          <td class="said"><code><bdi>${oneLine(JSON.stringify(one.config))}</bdi></code></td>
        </tr>`,
      )}
    </tbody>
  </table></div>`;
}

function Differences({ value, place }) {
  if (!value.compared) return html`<p class="quiet">No step has a value of two live producers, so there is nothing to compare.</p>`;
  const head = html`<h2>Where they differ</h2><p class="quiet" role="status">${count(value.differing)} of ${plural(value.compared, "step")} with two values or more.${value.differing > value.nodes.length ? ` The ${value.nodes.length} widest are shown.` : ""}</p>`;
  if (!value.nodes.length) return head;
  return html`${head}<div class="scroll" tabindex="0" role="region" aria-label="Steps on which versions differ"><table class="list">
    <thead><tr><th scope="col">step</th>${value.versions.map((one) => html`<th scope="col" class="n" key=${one.producer}>${visible(one.label)}<br /><code>${one.producer.slice(0, 6)}</code></th>`)}<th scope="col" class="n">spread</th></tr></thead>
    <tbody>
      ${value.nodes.map(
        (one) => html`<tr key=${one.node}>
          <td class="said"><a href=${address({ ...place, view: "tree", choices: { node: one.node } })}>${SPOKEN[one.kind]} <bdi>${oneLine(one.text) || one.node.slice(0, 8)}</bdi></a></td>
          ${one.values.map((given, at) => html`<td key=${at} class=${classes("n", value.versions[at].retired && "retired")}>${fixed(given, 3)}</td>`)}
          <td class="n strong">${fixed(one.spread, 3)}</td>
        </tr>`,
      )}
    </tbody>
  </table></div>`;
}

export { Scores };
