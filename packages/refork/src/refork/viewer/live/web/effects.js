// Every change that was drawn and has a control, as cards.
import { html, useAnswer, useEffect, useRef, useState } from "./base.js";
import { ask } from "./data.js";
import { EffectCard } from "./effect.js";
import { address, choose } from "./place.js";
import { Busy, Choice, Notice } from "./parts.js";
import { count, oneLine, plural, visible } from "./text.js";

function Effects({ place, tree, version }) {
  const { value, error } = useAnswer(() => ask("effects", { tree: place.tree, task: place.task }), [place.tree, place.task, version]);
  const score = place.choices.score || (tree.scores.includes("success") ? "success" : tree.scores[0]) || "success";
  const at = place.choices.at;
  const shown = value ? value.pairs.filter((pair) => !at || pair.node === at) : [];
  return html`<main class="page" id="main">
    <h1>Effects</h1>
    <p class="quiet">Each card holds a changed arm against its control, from the draws on the tree now.${at && html` Only those at step <code>${at.slice(0, 8)}</code>; <a href=${address({ ...place, choices: { ...place.choices, at: null } })}>show all</a>.`}</p>
    ${tree.scores.length > 0 && html`<div class="filters"><${Choice} label="score" value=${score} options=${tree.scores.map((s) => [s, s])} onPick=${(picked) => choose({ score: picked })} /></div>`}
    ${error && html`<${Notice} error=${error} />`}
    ${!value && !error && html`<${Busy} />`}
    ${value && !shown.length && html`<${Notice}>No change with a control was drawn here yet. Open a trajectory, pick a token, and fork; or use <code>refork fork</code>.<//>`}
    ${value && shown.length > 0 && html`<p class="quiet" role="status">${plural(shown.length, "effect")}${value.total > value.pairs.length ? `, of ${count(value.total)}` : ""}</p>`}
    ${shown.map((pair) => html`<${Pair} key=${pair.changed} ...${{ place, pair, score, version }} />`)}
  </main>`;
}

// A card asks for its draws when it comes near.
function Pair({ place, pair, score, version }) {
  const [near, setNear] = useState(false);
  const box = useRef(null);
  useEffect(() => {
    const watch = new IntersectionObserver(([seen]) => seen.isIntersecting && setNear(true), { rootMargin: "500px" });
    watch.observe(box.current);
    return () => watch.disconnect();
  }, []);
  const { value, error } = useAnswer(
    () => (near ? ask("effect", { tree: place.tree, control: pair.control, changed: pair.changed, score }) : null),
    [near, pair.control, pair.changed, score, version],
  );
  const where = pair.token == null ? "behind" : `behind token ${pair.token} of`;
  return html`<div ref=${box} class="pair-card">
    <p class="quiet">${where} <a href=${address({ ...place, view: "tree", choices: { ...place.choices, at: null, node: pair.node } })}>step ${pair.node.slice(0, 8)}</a> · ${visible(pair.policy || "")} · seed ${pair.seed}</p>
    ${error && html`<${Notice} error=${error} />`}
    ${value ? html`<${EffectCard} level="h2" card=${value} tree=${place.tree} task=${place.task} head=${`${visible(pair.what)} ${oneLine(pair.before)} ${oneLine(pair.after)}`} />` : !error && html`<${Busy} />`}
  </div>`;
}

export { Effects };
