/* How a pair of options looks. Everything is built as nodes: no text is ever read as markup. */
"use strict";
(() => {
  const Refork = (window.Refork = window.Refork || {});

  /** An element with properties and children (nodes or texts). */
  function make(name, properties = {}, ...children) {
    const node = document.createElement(name);
    for (const [key, value] of Object.entries(properties)) {
      if (key in node) node[key] = value;
      else node.setAttribute(key, value);
    }
    node.append(...children.filter((one) => one !== null && one !== undefined));
    return node;
  }

  const fill = (text, values) => text.replace(/\{(\w+)\}/g, (all, name) => values[name] ?? all);

  function numbers(lang) {
    const percent = new Intl.NumberFormat(lang, { style: "percent", maximumFractionDigits: 1 });
    const amount = new Intl.NumberFormat(lang, { maximumFractionDigits: 2 });
    return { percent: (x) => percent.format(x), amount: (x) => amount.format(x) };
  }

  /** The two buttons of a pair, A and B; none in an example. */
  function buttons(study, choose) {
    const { option_a: a, option_b: b, choose: label } = study.texts.task;
    return [a, b].map((option, response) =>
      choose && make("button", { type: "button", onclick: (event) => choose(response, "button", event) }, fill(label, { option })),
    );
  }

  function cues(study, pair, choose) {
    const say = study.texts.task;
    const { percent } = numbers(study.texts.lang);
    const cell = (rating) => {
      if (!study.binary) return make("td", {}, String(rating));
      return make("td", { className: rating ? "yes" : "no" }, rating ? say.says_yes : say.says_no);
    };
    const head = [say.experts, say.option_a, say.option_b].map((text) => make("th", { scope: "col" }, text));
    const rows = study.validities.map((validity, place) => {
      const told = make("small", {}, fill(say.right, { percent: percent(validity) }));
      const name = make("th", { scope: "row" }, fill(say.expert, { number: place + 1 }), told);
      return make("tr", {}, name, cell(pair.a[place]), cell(pair.b[place]));
    });
    const table = make("table", { className: "pair" }, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...rows));
    if (choose) {
      const cells = buttons(study, choose).map((button) => make("td", {}, button));
      table.append(make("tfoot", {}, make("tr", {}, make("td"), ...cells)));
    }
    return table;
  }

  function gambles(study, pair, choose) {
    const say = study.texts.task;
    const { percent, amount } = numbers(study.texts.lang);
    const outcome = (x) => (x === 0 ? say.nothing : fill(x > 0 ? say.win : say.lose, { amount: amount(Math.abs(x)) }));
    const [one, other] = buttons(study, choose);
    const card = (name, branches, button) => {
      const rows = branches.filter(([, chance]) => chance > 0).flatMap(([x, chance]) => [
        make("dt", {}, fill(say.chance, { percent: percent(chance) })), make("dd", {}, outcome(x)),
      ]);
      return make("section", { className: "gamble" }, make("h2", {}, name), make("dl", {}, ...rows), button);
    };
    return make("div", { className: "gambles" }, card(say.option_a, pair.a, one), card(say.option_b, pair.b, other));
  }

  Refork.make = make;
  Refork.fill = fill;
  /** The nodes of a pair; with `choose` it has buttons, which call it. */
  Refork.pair = (study, index, choose) => (study.domain === "cues" ? cues : gambles)(study, study.stimuli[index], choose);
})();
