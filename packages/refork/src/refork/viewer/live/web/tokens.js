// A step's text token by token, coloured by what is known of each token.
import { html, useRef, useState, classes } from "./base.js";
import { count, fixed, signed, tokenName, visible, percent } from "./text.js";

const RECORDED = {
  logprobs: "log-prob", logprobs_t1: "log-prob at temperature 1", ref_logprobs: "reference log-prob", entropy: "entropy",
  potential: "potential", advantage: "credit",
};

// A name as a reader would say it.
function nameOf(column) {
  return RECORDED[column] || column;
}

// How a column is coloured: likely to surprising, low to high, or lost to gained around zero.
function kindOf(column, range) {
  if (/logprobs/.test(column)) return "surprise";
  if (column === "entropy") return "heat";
  if (range.low >= 0 && range.high <= 1) return "rate";
  return range.low < 0 ? "credit" : "heat";
}

// The class of one value under a column's range.
function shade(column, value, range) {
  if (value == null) return "";
  const kind = kindOf(column, range);
  const part = { surprise: () => -value / 5, heat: () => value / (range.high || 1), rate: () => value, credit: () => value / (2 * range.reach || 1) + 0.5 }[kind]();
  const step = Math.round(10 * Math.min(1, Math.max(0, part)));
  return kind === "surprise" ? `w${step}` : kind === "heat" ? `h${step}` : `t${step}`;
}

// The range of a column over the nodes that are loaded.
function rangeOf(nodes, column) {
  let low = Infinity;
  let high = -Infinity;
  for (const node of nodes) {
    for (const value of node?.values?.[column] || []) {
      if (value == null) continue;
      if (value < low) low = value;
      if (value > high) high = value;
    }
  }
  return low > high ? { low: 0, high: 0, reach: 0 } : { low, high, reach: Math.max(Math.abs(low), Math.abs(high)) };
}

function legendOf(column, range) {
  const kind = kindOf(column, range);
  if (kind === "surprise") return { kind: "w", low: "likely", high: "surprising" };
  if (kind === "heat") return { kind: "h", low: fixed(0, 0), high: fixed(range.high) };
  if (kind === "rate") return { kind: "t", low: "0", high: "1" };
  return { kind: "t", low: signed(-range.reach), high: signed(range.reach) };
}

// The tokens as a list of options: arrows move, Enter opens.
function Tokens({ node, keep, column, range, onPick, picked, name }) {
  const [at, setAt] = useState(0);
  const box = useRef(null);
  const values = node.values[column];
  const forks = new Map(node.branches.filter((one) => one.keep != null).map((one) => [one.keep, one.count]));
  const base = `tok-${node.id}`;
  const move = (next) => {
    const to = Math.max(0, Math.min(node.tokens.length - 1, next));
    setAt(to);
    box.current.children[to]?.scrollIntoView({ block: "nearest" });
  };
  const keys = (event) => {
    const acts = {
      ArrowRight: () => move(at + 1), ArrowLeft: () => move(at - 1), Home: () => move(0), End: () => move(node.tokens.length - 1),
      ArrowDown: () => move(below(box.current, at, 1)), ArrowUp: () => move(below(box.current, at, -1)),
      Enter: () => onPick(at), " ": () => onPick(at), f: () => onPick(at),
    };
    if (!acts[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    acts[event.key]();
  };
  const click = (event) => {
    const token = event.target.closest("[data-at]");
    if (!token) return;
    setAt(Number(token.dataset.at));
    onPick(Number(token.dataset.at));
  };
  return html`<div ref=${box} class="tokens" role="listbox" tabindex="0" aria-label=${name} aria-activedescendant=${`${base}-${at}`} onKeyDown=${keys} onClick=${click}>
    ${node.tokens.map(
      (text, place) => html`<span key=${place} id=${`${base}-${place}`} data-at=${place} role="option" aria-selected=${picked === place}
        aria-label=${text.trim() ? null : tokenName(text)} title=${hint(text, place, node, column)}
        class=${classes("tok", values && shade(column, values[place], range), place === at && "at", picked === place && "picked", keep != null && place >= keep && "cut", forks.has(place + 1) && "forked")}
        >${visible(text)}</span>`,
    )}
  </div>`;
}

// The token under or over another one on the screen.
function below(box, at, way) {
  const here = box.children[at].getBoundingClientRect();
  let best = at;
  for (let next = at + way; next >= 0 && next < box.children.length; next += way) {
    const there = box.children[next].getBoundingClientRect();
    const other = way * (there.top - here.top) > here.height / 2;
    if (other && best === at) best = next;
    if (!other || best === at) continue;
    const line = box.children[best].getBoundingClientRect();
    if (Math.abs(there.top - line.top) > here.height / 2) break;
    if (Math.abs(there.left - here.left) < Math.abs(line.left - here.left)) best = next;
  }
  return best;
}

function hint(text, place, node, column) {
  const value = node.values[column]?.[place];
  const said = value == null ? "" : ` · ${nameOf(column)} ${fixed(value, 3)}`;
  return `token ${place + 1} “${tokenName(text)}”${said}`;
}

// All that is known of one token.
function TokenFacts({ node, at }) {
  const logprob = node.values.logprobs?.[at];
  const rows = Object.entries(node.values).map(([name, values]) => [nameOf(name), fixed(values[at], 4)]);
  if (logprob != null) rows.unshift(["probability", percent(Math.exp(logprob))]);
  return html`<dl class="facts">
    <div><dt>token</dt><dd>${count(at + 1)} of ${count(node.count)}, id ${node.ids[at]}</dd></div>
    ${rows.map(([name, value]) => html`<div key=${name}><dt>${visible(name)}</dt><dd>${value}</dd></div>`)}
  </dl>`;
}

export { Tokens, TokenFacts, nameOf, rangeOf, legendOf };
