// The page: where the reader is decides what is shown.
import { html, render, Component, useAnswer, useEffect, useRef, useState, classes } from "./base.js";
import { Chat } from "./chat.js";
import { ask, live, start } from "./data.js";
import { Diff } from "./diff.js";
import { Effects } from "./effects.js";
import { Graph } from "./graph.js";
import { Help } from "./help.js";
import { Busy, Notice } from "./parts.js";
import { address, choose, go, read, usePlace } from "./place.js";
import { Scores } from "./scores.js";
import { Tasks, Trees } from "./tasks.js";
import { oneLine, visible } from "./text.js";
import { Outline } from "./tree.js";

const VIEWS = [["tree", "Tree"], ["graph", "Graph"], ["effects", "Effects"], ["scores", "Scores"]];
const THEMES = ["system", "light", "dark"];
const EVERY = 1000;

// The colours of the page; what the reader chose is remembered where the browser allows it.
function useTheme() {
  const [theme, setTheme] = useState(() => recalled() || "system");
  useEffect(() => {
    if (theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    try {
      localStorage.setItem("refork-theme", theme);
    } catch {
      // a file from a disk may have no storage
    }
    dispatchEvent(new Event("themechange"));
  }, [theme]);
  return [theme, () => setTheme(THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length])];
}

function recalled() {
  try {
    return localStorage.getItem("refork-theme");
  } catch {
    return null;
  }
}

// A tree's facts, asked for anew when its version changes: a run that grows is seen to grow.
function useTree(name) {
  const [version, setVersion] = useState(null);
  const [lost, setLost] = useState(false);
  const told = useAnswer(() => name && ask("tree", { tree: name }), [name, version]);
  const facts = told.value?.name === name ? told.value : null;
  const known = useRef("");
  known.current = facts?.version ?? "";
  useEffect(() => {
    if (!name || !live) return undefined;
    let over = false;
    let timer = 0;
    const look = async () => {
      const began = performance.now();
      try {
        if (!document.hidden && known.current) {
          const now = await ask("version", { tree: name });
          if (!over) setLost(false);
          if (!over && now.version !== known.current) setVersion(now.version);
        }
      } catch {
        if (!over) setLost(true);
      }
      // A large tree that grows is not asked more often than it can answer.
      if (!over) timer = setTimeout(look, Math.max(EVERY, 4 * (performance.now() - began)));
    };
    timer = setTimeout(look, EVERY);
    return () => {
      over = true;
      clearTimeout(timer);
    };
  }, [name]);
  return { facts, error: facts ? null : told.error, lost };
}

function App() {
  const place = usePlace();
  const [theme, nextTheme] = useTheme();
  const [help, setHelp] = useState(false);
  const only = start.only || (live ? null : start.shared.tree.name);
  const here = place.tree ? place : { ...place, tree: only };
  const { facts, error, lost } = useTree(here.tree);
  useKeys(here, only, nextTheme, setHelp);
  useEffect(() => {
    document.title = [here.task && VIEWS.find(([key]) => key === here.view)?.[1], here.tree, "Refork"].filter(Boolean).join(" · ");
  }, [here.tree, here.task, here.view]);
  return html`<a class="skip" href="#main" onClick=${skip}>skip to the content</a>
    <${Header} place=${here} ...${{ only, theme, nextTheme, lost }} onHelp=${() => setHelp(true)} />
    <${Fence} key=${`${here.tree}/${here.task}/${here.view}`}>
      ${!here.tree ? html`<${Trees} />` : error ? html`<main class="page" id="main"><h1 class="unseen">This cannot be shown</h1><${Notice} error=${error} /></main>` : !facts ? html`<main class="page" id="main"><${Busy} /></main>` : html`<${View} place=${here} tree=${facts} version=${facts.version} />`}
    <//>
    ${help && html`<${Help} onClose=${() => setHelp(false)} />`}`;
}

function skip(event) {
  event.preventDefault();
  const main = document.querySelector("#main");
  main?.setAttribute("tabindex", "-1");
  main?.focus();
}

// An error of one view does not take the page away.
class Fence extends Component {
  componentDidCatch(error) {
    console.error(error);
    this.setState({ error });
  }

  render({ children }, { error }) {
    return error ? html`<main class="page" id="main"><h1 class="unseen">This cannot be shown</h1><${Notice} error=${error} /></main>` : children;
  }
}

function View(props) {
  const { place } = props;
  if (!place.task) return html`<${Tasks} ...${props} />`;
  const views = { graph: Graph, effects: Effects, scores: Scores, diff: Diff };
  const Chosen = views[place.view] || TreeAndWalk;
  return html`<${Chosen} ...${props} />`;
}

function TreeAndWalk({ place, tree, version }) {
  const leaf = place.choices.node;
  const open = (node) => choose({ node });
  return html`<main id="main" class=${classes("split", leaf && "reading")}>
    <h1 class="unseen">Tree of a task</h1>
    <${Outline} ...${{ place, tree, version }} onOpen=${open} selected=${leaf} />
    ${leaf ? html`<${Chat} ...${{ place, tree, version, leaf }} onBack=${() => choose({ node: null })} />` : html`<section class="chat empty" aria-label="Trajectory"><p>Choose a line to read the trajectory that leads there.</p><p class="quiet">Arrow keys move, Enter reads, <kbd>?</kbd> tells all keys.</p></section>`}
  </main>`;
}

function Header({ place, only, theme, nextTheme, lost, onHelp }) {
  return html`<header class="top">
    <nav class="trail" aria-label="Where you are">
      <a class="brand" href="#/">refork</a>
      ${place.tree && !(only && place.tree === only && !place.task) && html`<a href=${address({ tree: place.tree })}>${visible(place.tree)}</a>`}
      ${place.task && html`<${TaskName} place=${place} />`}
    </nav>
    ${place.task &&
    html`<nav class="tabs" aria-label="Views">
      ${VIEWS.map(([key, name]) => html`<a key=${key} href=${address({ ...place, view: key, choices: kept(place.choices) })} aria-current=${place.view === key ? "page" : null}>${name}</a>`)}
      ${place.view === "diff" && html`<a href=${location.hash} aria-current="page">Branches</a>`}
    </nav>`}
    <div class="tools">
      ${lost && html`<span class="caution" role="alert">the server does not answer</span>`}
      ${!live && html`<span class="quiet">shared file</span>`}
      <button type="button" class="plain" onClick=${nextTheme} aria-label=${`Theme: ${theme}; change`} title=${`theme: ${theme}`}>${{ system: "◐", light: "☀", dark: "☾" }[theme]}</button>
      <button type="button" class="plain" onClick=${onHelp} aria-label="Keys and help">?</button>
    </div>
  </header>`;
}

function kept({ score, tokens, steps, node }) {
  return { score, tokens, steps, node };
}

function TaskName({ place }) {
  const { value } = useAnswer(() => ask("nodes", { tree: place.tree, ids: place.task }), [place.tree, place.task]);
  const node = value?.nodes[0];
  const text = node && node.id === place.task ? oneLine(node.tokens ? node.tokens.slice(0, 60).join("") : node.text.slice(0, 300)) : "";
  return html`<span class="task-name" title=${text}><bdi>${text || place.task.slice(0, 8)}</bdi></span>`;
}

function useKeys(place, only, nextTheme, setHelp) {
  useEffect(() => {
    const keys = (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
      if (/INPUT|SELECT|TEXTAREA/.test(event.target.tagName)) {
        if (event.key === "Escape") event.target.blur();
        return;
      }
      const now = { ...read(), tree: place.tree };
      const up = () => go(now.task ? { tree: now.tree } : { tree: null });
      const acts = {
        "?": () => setHelp(true), t: nextTheme, u: up,
        "/": () => document.getElementById("search")?.focus(),
        Escape: () => now.choices.node && now.view === "tree" && choose({ node: null }),
      };
      const view = place.task && VIEWS[Number(event.key) - 1];
      const act = view ? () => go({ ...now, view: view[0], choices: kept(now.choices) }) : acts[event.key];
      if (!act) return;
      event.preventDefault();
      act();
    };
    addEventListener("keydown", keys);
    return () => removeEventListener("keydown", keys);
  });
}

render(html`<${App} />`, document.getElementById("app"));
