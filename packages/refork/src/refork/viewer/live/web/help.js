// What the keys do.
import { html, useEffect, useRef } from "./base.js";

const KEYS = [
  ["Everywhere", [["1 2 3 4", "tree, graph, effects, scores"], ["u", "up: from a task to its tree, to all trees"], ["/", "search"], ["t", "light, dark, as the system"], ["?", "this help"], ["Esc", "close what is open"]]],
  ["In the tree", [["↑ ↓ or k j", "one line"], ["→ ←", "open, close a fork; go to the line above it"], ["Page, Home, End", "far"], ["Enter", "read the trajectory"], ["n p", "next, previous hit of the search"]]],
  ["In a trajectory", [["Tab", "to the next step's tokens"], ["← → ↑ ↓", "from token to token"], ["Enter or f", "open a token: facts, fork"], ["c", "next colour of tokens"]]],
];

function Help({ onClose }) {
  const box = useRef(null);
  useEffect(() => {
    box.current.showModal();
  }, []);
  return html`<dialog ref=${box} class="help" aria-labelledby="help-title" onClose=${onClose}>
    <header class="row"><h2 id="help-title">Keys</h2><button type="button" class="plain" aria-label="Close" onClick=${() => box.current.close()}>✕</button></header>
    ${KEYS.map(([part, keys]) => html`<section key=${part}><h3>${part}</h3><dl class="keys">${keys.map(([key, does]) => html`<div key=${key}><dt><kbd>${key}</kbd></dt><dd>${does}</dd></div>`)}</dl></section>`)}
  </dialog>`;
}

export { Help };
