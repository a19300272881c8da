// Small pieces that several views show: scores, marks of kinds, notices.
import { html, classes } from "./base.js";
import { fixed, count, visible } from "./text.js";

const MARKS = { task: "◆", observation: "○", action: "▶", rewrite: "↻", verdict: "■" };
const SPOKEN = { task: "task", observation: "world", action: "policy", rewrite: "rewrite", verdict: "verdict" };

// A function from a score to a step of the scale, 0 to 10: rates as they are, others by their own range.
function scale(low, high) {
  if (!(low < 0 || high > 1)) return (value) => Math.round(10 * Math.min(1, Math.max(0, value)));
  if (low < 0) {
    const reach = Math.max(-low, high) || 1;
    return (value) => Math.round(5 + (5 * value) / reach);
  }
  return (value) => Math.round((10 * (value - low)) / (high - low || 1));
}

function known(value) {
  return value != null && !Number.isNaN(value);
}

function Score({ value, of, step, own }) {
  if (!known(value)) return html`<span class="score none" title=${of > 0 ? "no finite score" : "no score"}>–</span>`;
  const said = own || of === 1 ? `score ${fixed(value)}` : `mean ${fixed(value)} of ${count(of)} scores`;
  return html`<span class=${classes("score", `s${step}`)} title=${said}
    >${fixed(value)}${of > 1 && !own && html`<small> n=${count(of)}</small>`}</span
  >`;
}

function Mark({ kind, origin, edited }) {
  const word = origin === "simulated" ? "simulated" : edited ? "edit" : SPOKEN[kind];
  return html`<span class=${classes("mark", kind, origin === "simulated" && "simulated")} aria-hidden="true">${MARKS[kind]}</span
    ><span class="unseen">${word}: </span>`;
}

function Notice({ error, children }) {
  if (error) return html`<div class="notice error" role="alert"><p>${visible(String(error.message || error))}</p></div>`;
  return html`<div class="notice"><p>${children}</p></div>`;
}

function Busy({ what = "reading" }) {
  return html`<p class="busy" role="status">${what}…</p>`;
}

function Choice({ label, value, options, onPick, hidden }) {
  return html`<label class="choice">
    <span class=${hidden ? "unseen" : ""}>${label}</span>
    <select value=${value} onChange=${(event) => onPick(event.target.value)}>
      ${options.map(
        ([key, name]) => html`<option key=${key} value=${key} selected=${key === value}>${visible(name)}</option>`,
      )}
    </select>
  </label>`;
}

// The steps of the scale with what its ends mean.
function Legend({ low, high, kind = "s" }) {
  const steps = Array.from({ length: 11 }, (_, step) => step);
  return html`<span class="legend"
    >${low}<span class="steps" aria-hidden="true">${steps.map((step) => html`<i key=${step} class=${`${kind}${step}`}></i>`)}</span>${high}</span
  >`;
}

export { MARKS, SPOKEN, scale, known, Score, Mark, Notice, Busy, Choice, Legend };
