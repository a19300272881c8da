/* The two kinds of jsPsych trials of an experiment: screens to read, and choices. */
"use strict";
(() => {
  const Refork = (window.Refork = window.Refork || {});
  const { ParameterType } = jsPsychModule;
  const { make, fill } = Refork;

  /** Show a section in place of all else, and put the reader at its heading. */
  function show(display, ...children) {
    display.replaceChildren(make("section", {}, ...children));
    document.getElementById("study").tabIndex = -1; // jsPsych makes it a stop of the Tab key; it has nothing to do there
    const heading = display.querySelector("h1");
    heading.tabIndex = -1;
    heading.focus({ preventScroll: true });
    window.scrollTo(0, 0);
  }

  const paragraphs = (lines) => lines.map((line) => make("p", {}, line));

  /** Pages with a way on and, from the second, a way back; `act` is waited for before the last one is left. */
  class ScreenPlugin {
    static info = {
      name: "refork-screen",
      version: "1.0.0",
      parameters: {
        pages: { type: ParameterType.COMPLEX, array: true, default: undefined },
        back: { type: ParameterType.STRING, default: "" },
        act: { type: ParameterType.FUNCTION, default: null },
      },
      data: { screen: { type: ParameterType.STRING }, button: { type: ParameterType.STRING } },
    };
    constructor(jsPsych) {
      this.jsPsych = jsPsych;
    }
    trial(display, trial) {
      this.open(display, trial, 0);
    }
    open(display, trial, place) {
      const page = trial.pages[place];
      const back = place > 0 ? [{ label: trial.back, value: "back" }] : [];
      const list = [...page.buttons, ...back].map(({ label, value, primary }) =>
        make("button", { type: "button", className: primary ? "primary" : "", onclick: () => this.press(display, trial, place, value) }, label),
      );
      show(display, make("h1", {}, page.heading), ...page.body(), make("div", { className: "buttons" }, ...list));
    }
    async press(display, trial, place, value) {
      const to = place + (value === "back" ? -1 : 1);
      if (value === "back" || (value === "next" && to < trial.pages.length)) {
        this.open(display, trial, to);
        return;
      }
      for (const button of display.querySelectorAll("button")) button.disabled = true;
      if (trial.act) await trial.act(value);
      this.jsPsych.finishTrial({ screen: trial.pages[place].heading, button: value });
    }
  }

  /** A pair and the choice of one option by key, click or touch; `save` is waited for before the next. */
  class ChoicePlugin {
    static info = {
      name: "refork-choice",
      version: "1.0.0",
      parameters: {
        index: { type: ParameterType.INT, default: undefined },
        stimulus: { type: ParameterType.INT, default: undefined },
        study: { type: ParameterType.COMPLEX, default: undefined },
        save: { type: ParameterType.FUNCTION, default: undefined },
      },
      data: {
        index: { type: ParameterType.INT },
        stimulus: { type: ParameterType.INT },
        response: { type: ParameterType.INT },
        rt_ms: { type: ParameterType.FLOAT },
        by: { type: ParameterType.STRING },
      },
    };
    constructor(jsPsych) {
      this.jsPsych = jsPsych;
    }
    trial(display, trial) {
      const { study, index, stimulus } = trial;
      const say = study.texts.task;
      const abort = new AbortController();
      let start = performance.now();
      const choose = async (response, by, event) => {
        if (abort.signal.aborted) return;
        abort.abort();
        const choice = { index, stimulus, response, rt_ms: performance.now() - start, by };
        for (const button of display.querySelectorAll("button")) button.disabled = true;
        await trial.save(choice, event);
        display.replaceChildren();
        this.jsPsych.finishTrial(choice);
      };
      const told = fill(say.progress, { number: index + 1, total: study.total });
      const bar = make("progress", { max: study.total, value: index, "aria-hidden": "true" });
      show(display, make("p", { className: "progress" }, told, bar), make("h1", {}, say.question),
        Refork.pair(study, stimulus, choose), make("p", { className: "keys" }, say.keys));
      requestAnimationFrame(() => { start = performance.now(); }); // from when it can be seen
      const keyed = (event) => {
        if (event.repeat || event.ctrlKey || event.altKey || event.metaKey) return;
        if (document.querySelector("dialog[open]")) return;
        const key = event.key.toLowerCase();
        const response = study.keys.a.includes(key) ? 0 : study.keys.b.includes(key) ? 1 : null;
        if (response === null) return;
        event.preventDefault();
        choose(response, "key", event);
      };
      document.addEventListener("keydown", keyed, { signal: abort.signal });
      Refork.closeChoice = () => abort.abort();
    }
  }

  Object.assign(Refork, { show, paragraphs, ScreenPlugin, ChoicePlugin });
})();
