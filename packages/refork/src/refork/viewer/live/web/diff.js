// Two branches of one fork beside each other, from the point at which they part.
import { html, useAnswer, classes } from "./base.js";
import { ask } from "./data.js";
import { address, choose } from "./place.js";
import { Busy, Choice, Mark, Notice, Score, SPOKEN, known, scale } from "./parts.js";
import { fixed, oneLine, plural, visible } from "./text.js";

function Diff({ place, tree, version }) {
  const { at, left, right, score } = place.choices;
  const named = score || tree.scores[0] || null;
  const { value, error } = useAnswer(() => at && ask("branches", { tree: place.tree, node: at, score: named }), [place.tree, at, named, version]);
  if (!at) return html`<main class="page" id="main"><h1>Branches</h1><${Notice}>Open a trajectory in the tree, and follow “branches” under a step at which it forks.<//></main>`;
  if (error) return html`<main class="page" id="main"><h1>Branches</h1><${Notice} error=${error} /></main>`;
  if (!value) return html`<main class="page" id="main"><${Busy} /></main>`;
  const all = value.branches;
  const pair = [pickOf(all, left, 0), pickOf(all, right, 1)];
  return html`<main class="page wide-page" id="main">
    <h1>Branches side by side</h1>
    <p class="quiet">${plural(value.total, "branch", "branches")} grow from <a href=${address({ ...place, view: "tree", choices: { ...place.choices, at: null, node: at } })}>step ${at.slice(0, 8)}</a>${value.total > all.length ? `; the first ${all.length} can be chosen` : ""}.</p>
    <div class="sides">
      ${["left", "right"].map((side, place_) => html`<${Side} key=${side} ...${{ side, all, score: named }} picked=${pair[place_]} />`)}
    </div>
    ${pair[0] && pair[1] && pair[0] !== pair[1] ? html`<${Rungs} place=${place} version=${version} left=${pair[0]} right=${pair[1]} />` : html`<${Notice}>Choose two different branches.<//>`}
  </main>`;
}

function pickOf(all, leaf, fallback) {
  return all.find((one) => one.leaf === leaf) || all[fallback];
}

function Side({ side, all, picked, score }) {
  const options = all.map((one, at) => [one.leaf, `${at + 1}. ${known(one.mean) ? `${fixed(one.mean)} ` : ""}${oneLine(one.child.text).slice(0, 50) || `(${SPOKEN[one.child.kind]})`}`]);
  const step = scale(0, 1);
  return html`<div class="side">
    <${Choice} label=${side} value=${picked?.leaf} options=${options} onPick=${(value) => choose({ [side]: value })} />
    ${picked && html`<p class="quiet">${plural(picked.leaves, "ending")}${score ? html`, ${visible(score)} <${Score} value=${picked.mean} of=${picked.scored} step=${known(picked.mean) ? step(picked.mean) : 0} />` : ""}</p>`}
  </div>`;
}

function Rungs({ place, version, left, right }) {
  const { value, error } = useAnswer(() => ask("diff", { tree: place.tree, left: left.leaf, right: right.leaf }), [place.tree, left.leaf, right.leaf, version]);
  if (error) return html`<${Notice} error=${error} />`;
  if (!value) return html`<${Busy} what="comparing" />`;
  return html`<p class="quiet">${plural(value.shared, "step")} are shared${value.keep != null ? `; they part behind token ${value.keep} of the last` : ""}. Marked words are in one branch only.</p>
    <ol class="rungs">
      ${value.rungs.map((rung, at) => html`<li key=${at} class="rung">
        <${Cell} side=${rung.left} name="left" first=${at === 0 || !!value.rungs[at - 1].left} /><${Cell} side=${rung.right} name="right" first=${at === 0 || !!value.rungs[at - 1].right} />
      </li>`)}
    </ol>`;
}

function Cell({ side, name, first }) {
  if (!side && !first) return html`<div></div>`;
  if (!side) return html`<div class="cell over"><span class="quiet">this branch is over</span></div>`;
  return html`<div class=${classes("cell", side.kind)}>
    <span class="who"><span class="unseen">${name}, </span><${Mark} kind=${side.kind} /><span aria-hidden="true">${SPOKEN[side.kind]}</span></span>
    <p><bdi>${side.stretches.map((one, at) => (one.mark === "same" ? html`<span key=${at}>${visible(one.text)}</span>` : one.mark === "gone" ? html`<del key=${at}>${visible(one.text)}</del>` : html`<ins key=${at}>${visible(one.text)}</ins>`))}</bdi>${side.stretches.length === 0 && html`<span class="quiet">(no text)</span>`}</p>
    ${side.error && html`<p class="bad">${visible(side.error)}</p>`}
  </div>`;
}

export { Diff };
