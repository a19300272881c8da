// The one way to data: the live server, or what lies in a shared file.
import { offline } from "./offline.js";

const start = JSON.parse(document.getElementById("start").textContent);
const live = start.mode === "live";
const told = live ? null : offline(start.shared);

// The answer to a question; what is null or undefined is not asked.
async function ask(question, asked = {}) {
  if (!live) return told(question, asked);
  const given = Object.entries(asked).filter(([, value]) => value != null && value !== "");
  return answered(await fetch(`/api/${question}?${new URLSearchParams(given)}`));
}

// A question that changes something: a fork.
async function post(question, body) {
  const headers = { "content-type": "application/json" };
  return answered(await fetch(`/api/${question}`, { method: "POST", headers, body: JSON.stringify(body) }));
}

async function answered(answer) {
  const body = await answer.json().catch(() => null);
  if (!answer.ok) throw new Error(body?.error?.message || `the server answered ${answer.status}`);
  return body;
}

const kept = new Map();
const KEPT = 4000;
let waiting = new Map();

// A node with its text. Those asked for in one moment travel together; they are kept while the tree stays as it is.
function node(tree, version, id) {
  const key = `${tree}\n${version}\n${id}`;
  if (!kept.has(key)) {
    if (kept.size >= KEPT) kept.delete(kept.keys().next().value);
    kept.set(key, new Promise((resolve, reject) => queue(tree, id, resolve, (error) => (kept.delete(key), reject(error)))));
  }
  return kept.get(key);
}

function queue(tree, id, resolve, reject) {
  if (!waiting.size) setTimeout(send, 8);
  if (!waiting.has(tree)) waiting.set(tree, []);
  waiting.get(tree).push({ id, resolve, reject });
}

function send() {
  const asked = waiting;
  waiting = new Map();
  for (const [tree, items] of asked) {
    for (let from = 0; from < items.length; from += 50) {
      const part = items.slice(from, from + 50);
      ask("nodes", { tree, ids: part.map((one) => one.id).join(",") }).then(
        (answer) => part.forEach((one, at) => one.resolve(answer.nodes[at])),
        (error) => part.forEach((one) => one.reject(error)),
      );
    }
  }
}

// A column of numbers that travelled as base64.
function column(text, Kind) {
  const raw = atob(text);
  const data = new Uint8Array(raw.length);
  for (let at = 0; at < raw.length; at += 1) data[at] = raw.charCodeAt(at);
  return new Kind(data.buffer);
}

export { start, live, ask, post, node, column };
