/* The course of an experiment: consent, instructions, choices, end; and what may come between. */
"use strict";
(() => {
  const Refork = window.Refork;
  const { make, fill, show, paragraphs } = Refork;
  const study = JSON.parse(document.getElementById("document").textContent);
  const texts = study.texts;
  const params = Object.fromEntries(new URLSearchParams(location.search));
  const person = Refork.recruited(study, params);
  const store = new Refork.Store(study.study, person ? `${person.recruiter}:${person.person}` : "");
  const banner = document.getElementById("banner");
  const leave = document.getElementById("leave");
  const bot = new Set(navigator.webdriver ? ["webdriver"] : []);

  /** Milliseconds that the page was out of sight or not in use, reloads included. */
  const away = {
    get value() {
      const left = store.get("left");
      return (store.get("away") || 0) + (left ? Math.max(0, Date.now() - left) : 0);
    },
    out() {
      if (!store.get("left")) store.set("left", Date.now());
    },
    back() {
      if (document.hidden) return;
      store.set("away", away.value);
      store.set("left", null);
    },
    watch() {
      away.back();
      document.addEventListener("visibilitychange", () => (document.hidden ? away.out() : away.back()));
      window.addEventListener("blur", away.out);
      window.addEventListener("focus", away.back);
      window.addEventListener("pagehide", away.out);
    },
  };

  function lost(is) {
    banner.textContent = is ? texts.messages.lost : "";
    banner.hidden = !is;
  }
  const transport = Refork.transport(study, store, params, lost);

  /** A last screen: there is no way on from it. */
  function last(heading, ...children) {
    leave.hidden = true;
    const main = document.getElementById("study");
    main.replaceChildren(make("div"));
    show(main.firstChild, make("h1", {}, heading), ...children);
  }
  const stopped = (error) => {
    const said = { ...texts.messages, order: texts.messages.elsewhere }[error.code] || error.message;
    const again = error.code === "order" || error.code === "stale";
    last(again ? texts.messages.reload : texts.messages.refused, ...paragraphs([said, texts.messages.contact]));
  };

  function consent() {
    const say = texts.consent;
    const trap = make("input", { className: "trap", tabIndex: -1, autocomplete: "off", name: "website", "aria-hidden": "true" });
    const list = (lines) => make("ul", {}, ...lines.map((line) => make("li", {}, line)));
    const body = () => [
      ...paragraphs(say.about), make("h2", {}, say.collected_heading), list(say.collected), ...paragraphs([say.not_collected]),
      make("h2", {}, say.rights_heading), list(say.rights), trap, make("p", { className: "statement" }, say.statement),
    ];
    const buttons = [{ label: say.agree, value: "agree", primary: true }, { label: say.decline, value: "decline" }];
    const act = async (value) => {
      if (value === "decline") return finish(() => last(texts.declined.heading, ...paragraphs(texts.declined.text)));
      if (trap.value) bot.add("trap");
      const touch = matchMedia("(pointer: coarse)").matches;
      const page = { width: window.innerWidth, height: window.innerHeight, touch };
      for (const name of ["away", "left", "outbox"]) store.set(name, null); // of somebody before
      return guarded(async () => began(await transport.begin([...bot], page)));
    };
    return { type: Refork.ScreenPlugin, pages: [{ heading: say.heading, body, buttons }], act };
  }

  function instructions() {
    const pages = texts.instructions.map((page, place, all) => {
      const label = place === all.length - 1 ? texts.start : texts.next;
      const example = () => (page.example ? [make("div", { className: "example" }, Refork.pair(study, 0, null))] : []);
      const body = () => [...paragraphs(page.text), ...example()];
      return { heading: page.heading, body, buttons: [{ label, value: "next", primary: true }] };
    });
    return { type: Refork.ScreenPlugin, pages, back: texts.back };
  }

  function again(state) {
    const say = texts.again;
    const body = () => paragraphs(say.text.map((line) => fill(line, { number: state.answered, total: study.total })));
    const buttons = [{ label: say.button, value: "next", primary: true }];
    return { type: Refork.ScreenPlugin, pages: [{ heading: say.heading, body, buttons }] };
  }

  const state = { status: "new", answered: 0, order: [] };
  let done = null; // what is shown when jsPsych has ended; the end of the study where nothing else is said
  const jsPsych = initJsPsych({ display_element: "study", override_safe_mode: true });

  function began(standing) {
    Object.assign(state, standing);
    if (state.status === "going") {
      leave.hidden = false;
      away.watch();
    }
  }
  function finish(how) {
    done = how;
    Refork.closeChoice?.();
    jsPsych.abortExperiment();
  }
  async function guarded(work) {
    try {
      await work();
    } catch (error) {
      if (!(error instanceof Refork.Refused)) throw error;
      finish(() => stopped(error));
    }
  }

  const choice = {
    type: Refork.ChoicePlugin,
    study: () => study,
    index: () => state.answered,
    stimulus: () => state.order[state.answered],
    post_trial_gap: study.gap_ms,
    save: (made, event) => guarded(async () => {
      if (!event.isTrusted) bot.add("untrusted");
      Object.assign(state, await transport.answer({ ...made, away_ms: away.value }));
    }),
  };
  const left = () => state.status === "going" && state.answered < state.order.length;
  const choices = { timeline: [choice], loop_function: left };

  leave.addEventListener("click", () => document.getElementById("leaving").showModal());
  document.getElementById("leaving").addEventListener("close", (event) => {
    if (event.target.returnValue !== "leave") return;
    const say = texts.withdraw;
    finish(() => transport.withdraw().then(() => last(say.done_heading, ...paragraphs(say.done)), stopped));
  });

  function download() {
    const text = JSON.stringify(transport.file(), null, 1);
    const link = make("a", { href: URL.createObjectURL(new Blob([text], { type: "application/json" })) });
    link.download = `${transport.first.participant}.json`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
  }

  async function copy(button, code) {
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = texts.end.copied;
    } catch {
      getSelection().selectAllChildren(code); // no clipboard here: marked, so that one key copies it
    }
  }

  function end(standing) {
    const say = texts.end;
    const keep = study.mode === "file" && !standing.saved;
    const file = keep && make("button", { type: "button", className: "primary", onclick: download }, say.download);
    const saving = keep ? [...paragraphs([fill(say.send, { contact: texts.contact })]), make("div", { className: "buttons" }, file)] : paragraphs(say.text);
    const code = make("p", { className: "code" }, standing.code);
    const button = make("button", { type: "button", onclick: () => copy(button, code) }, say.copy);
    const back = standing.return && make("a", { className: "button primary", href: standing.return, rel: "noreferrer" }, say.return);
    const close = standing.return || keep ? [] : paragraphs([say.close]);
    last(say.heading, ...saving, make("h2", {}, say.code), code, make("div", { className: "buttons" }, back || "", button), make("p"), ...close);
  }

  async function main() {
    began(await transport.hello());
    if (state.status === "withdrawn") return last(texts.withdraw.done_heading, ...paragraphs(texts.withdraw.done));
    if (state.status === "ended") return end(state);
    const timeline = [];
    if (state.status === "new") timeline.push(consent());
    timeline.push(state.answered > 0 ? again(state) : instructions());
    timeline.push({ timeline: [choices], conditional_function: left });
    await jsPsych.run(timeline);
    if (done) return done();
    const standing = await transport.end(away.value, [...bot]);
    return end(standing);
  }
  main().catch(stopped);
})();
