// The effect card: control against change, the interval, and every pair of draws.
import { html, classes } from "./base.js";
import { address } from "./place.js";
import { known } from "./parts.js";
import { count, duration, fixed, oneLine, percent, signed, visible } from "./text.js";

const WIDE = 560;
const LEFT = 84;
const RIGHT = 150;

function EffectCard({ card, tree, task, busy, head, level = "h3" }) {
  const found = card.effect;
  const change = found ? { what: found.what, before_text: found.before_text, after_text: found.after_text } : card.change || {};
  const rate = !found || found.scale === "rate";
  return html`<article class=${classes("card effect", busy && "busy-card")} aria-label=${`Effect of ${change.what || "nothing"}`}>
    <header>
      <${level}>${found ? visible(card.sentence) : head || visible(change.what || "control alone")}<//>
      <${Change} change=${change} />
    </header>
    ${card.alone && html`<p>${alone(card)}</p>`}
    ${found ? html`<${Arms} found=${found} rate=${rate} /><${Facts} found=${found} card=${card} />` : card.why && html`<p class="quiet">${visible(card.why)}</p>`}
    <${Draws} card=${card} tree=${tree} task=${task} />
  </article>`;
}

function alone({ alone: told, score }) {
  if (told.rate == null) return `${count(told.draws)} draws, none of them graded by ${visible(score)}`;
  const show = told.scale === "rate" ? percent : fixed;
  return `${visible(score)} ${show(told.rate)}, 95 % interval ${show(told.low)} to ${show(told.high)}; ${count(told.graded)} of ${count(told.draws)} draws graded${told.errors ? `, ${count(told.errors)} failed` : ""}`;
}

function Change({ change }) {
  if (!change.before_text && !change.after_text) return null;
  return html`<p class="change"><del>${oneLine(change.before_text || "") || "nothing"}</del><span aria-hidden="true"> → </span><span class="unseen">becomes </span><ins>${oneLine(change.after_text || "") || "nothing"}</ins></p>`;
}

function Arms({ found, rate }) {
  const ends = [found.base, found.other].flatMap((arm) => [arm.low, arm.high, arm.rate]).filter(known);
  const low = rate ? 0 : Math.min(...ends);
  const high = rate ? 1 : Math.max(...ends);
  const reach = Math.min(rate ? 1 : Infinity, 1.15 * Math.max(...[found.low, found.high, found.difference].filter(known).map(Math.abs), 0.05));
  const show = rate ? percent : fixed;
  const rows = [
    ["control", found.base, low, high, show(found.base.rate), `${show(found.base.low)} to ${show(found.base.high)}`],
    ["change", found.other, low, high, show(found.other.rate), `${show(found.other.low)} to ${show(found.other.high)}`],
    ["difference", { rate: found.difference, low: found.low, high: found.high }, -reach, reach, signed(found.difference, 3), `${signed(found.low, 3)} to ${signed(found.high, 3)}`],
  ];
  return html`<div class="arms">
    <table>
      <thead><tr><th scope="col" class="unseen">arm</th><th scope="col" class="unseen">value</th><th scope="col" class="unseen">interval</th><th class="plot"><span class="unseen">drawn</span></th></tr></thead>
      <tbody>
        ${rows.map(
          ([name, arm, from, to, value, span], at) => html`<tr key=${name} class=${at === 2 ? "difference" : ""}>
            <th scope="row">${name}</th><td class="n strong">${value}</td><td class="n quiet">${span}</td>
            <td class="plot"><${Interval} arm=${arm} low=${from} high=${to} zero=${at === 2} /></td>
          </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
}

function Interval({ arm, low, high, zero }) {
  const x = (value) => 6 + (WIDE - LEFT - RIGHT - 12) * Math.min(1, Math.max(0, (value - low) / (high - low || 1)));
  const width = WIDE - LEFT - RIGHT;
  const sure = !zero || arm.low > 0 || arm.high < 0;
  return html`<svg class=${classes("interval", zero && "signed", sure && "sure")} viewBox=${`0 0 ${width} 22`} preserveAspectRatio="none" aria-hidden="true">
    <line class="axis" x1="6" x2=${width - 6} y1="11" y2="11" />
    ${zero && html`<line class="zero" x1=${x(0)} x2=${x(0)} y1="1" y2="21" />`}
    <line class="span" x1=${x(arm.low)} x2=${x(arm.high)} y1="11" y2="11" />
    <rect class="dot" x=${x(arm.rate) - 3.5} y="5" width="7" height="12" rx="3" />
  </svg>`;
}

function Facts({ found, card }) {
  const parts = [
    `${Math.round(100 * found.level)} % interval`, found.p == null ? null : found.p < 0.001 ? "p < 0.001" : `p = ${found.p.toPrecision(2)}`,
    `${count(found.draws)} ${found.paired ? "pairs" : "draws per arm"}`, found.ungraded ? `${count(found.ungraded)} not graded` : null,
    found.errors ? `${count(found.errors)} failed` : null, found.paired ? "same noise in both arms" : "arms with noise of their own",
    found.tokens ? `${count(found.tokens)} tokens` : null, found.seconds ? duration(found.seconds) : null, `score ${visible(card.score)}`,
  ];
  return html`<p class="quiet">${parts.filter(Boolean).join(" · ")}</p>${found.caution && html`<p class="caution">${visible(found.caution)}</p>`}`;
}

// Each draw as two marks, the control's over the change's; unequal pairs stand out.
function Draws({ card, tree, task }) {
  const { draws } = card;
  if (!draws.length) return null;
  const mark = (side) => (!side ? "absent" : side.end === "error" ? "failed" : side.value == null ? "ungraded" : side.value >= 1 ? "won" : side.value <= 0 ? "lost" : "between");
  const sign = { won: "✓", lost: "✗", between: "~", ungraded: "?", failed: "!", absent: "·" };
  const differ = draws.filter((one) => one.control?.value != null && one.changed?.value != null && one.control.value !== one.changed.value);
  const better = differ.filter((one) => one.changed.value > one.control.value).length;
  const one = (side, arm, draw) => {
    const kind = mark(side);
    const said = `draw ${draw}, ${arm}: ${side?.value != null ? `score ${fixed(side.value)}` : kind}`;
    const body = html`<span aria-hidden="true">${sign[kind]}</span>`;
    return side
      ? html`<a class=${classes("draw", kind)} href=${address({ tree, task, choices: { node: side.leaf } })} aria-label=${said} title=${said}>${body}</a>`
      : html`<span class="draw absent" role="img" aria-label=${said}>${body}</span>`;
  };
  return html`<details class="draws">
    <summary>${count(draws.length)} draws${differ.length ? `, ${count(differ.length)} pairs differ: ${count(better)} better, ${count(differ.length - better)} worse` : ""}</summary>
    <div class="grid" role="group" aria-label="Draws: control above, change below">
      ${draws.map((pair) => html`<span key=${pair.draw} class=${classes("pairing", differ.includes(pair) && "differs")}>${one(pair.control, "control", pair.draw)}${card.changed && one(pair.changed, "change", pair.draw)}</span>`)}
    </div>
  </details>`;
}

export { EffectCard };
