/* An experiment of jsPsych's own plugins. Choices stay in this window until the end. */
"use strict";
(async () => {
  const study = JSON.parse(document.getElementById("document").textContent);
  const { texts } = study;
  const display = document.getElementById("study");
  const jsPsych = initJsPsych({ display_element: display, override_safe_mode: true });
  const subject = [...crypto.getRandomValues(new Uint32Array(3))].map((one) => one.toString(16).padStart(8, "0")).join("");
  const link = jsPsych.data.urlVariables();
  const recruiter = study.recruiters.find((one) => link[one]);
  document.title = texts.title;
  document.documentElement.lang = texts.lang;

  const consent = {
    type: jsPsychHtmlButtonResponse,
    stimulus: texts.consent,
    choices: [texts.agree, texts.decline],
    on_finish: ({ response }) => response === 1 && jsPsych.abortExperiment(texts.declined),
  };
  const instructions = {
    type: jsPsychInstructions,
    pages: study.instructions,
    show_clickable_nav: true,
    button_label_next: texts.next,
    button_label_previous: texts.back,
  };
  const choices = {
    timeline: [{
      type: jsPsychHtmlButtonResponse,
      stimulus: jsPsych.timelineVariable("pair"),
      data: jsPsych.timelineVariable("data"),
      choices: [texts.choose_a, texts.choose_b],
      prompt: `<p class="keys">${texts.keys}</p>`,
      css_classes: ["choice"],
      post_trial_gap: 250,
    }],
    timeline_variables: study.pairs,
    sample: { type: "fixed-repetitions", size: study.repeats },
  };

  // A key presses the button, so that both ways are timed and recorded alike.
  document.addEventListener("keydown", (event) => {
    const at = ["fj", "FJ"].map((keys) => keys.indexOf(event.key)).find((place) => place >= 0);
    if (at === undefined || event.repeat || event.ctrlKey || event.altKey || event.metaKey) return;
    document.querySelectorAll(".choice button")[at]?.click();
  });
  const stay = (event) => event.preventDefault();
  addEventListener("beforeunload", stay);

  function away() {
    let total = 0;
    let left = null;
    for (const { event, time } of jsPsych.data.getInteractionData().values()) {
      if (event === "blur") left ??= time;
      if (event === "focus" && left !== null) {
        total += time - left;
        left = null;
      }
    }
    return total / 1000;
  }

  async function send(name, data) {
    if (!study.post) return false;
    try {
      const body = JSON.stringify({ experimentID: study.name, filename: name, data });
      const answer = await fetch(study.post, { method: "POST", headers: { "content-type": "application/json" }, body });
      return answer.ok;
    } catch {
      return false; // no connection: the person saves the file instead
    }
  }

  // The order of the pairs is the person's own, and can be drawn again from the name.
  jsPsych.randomization.setSeed(subject);
  await jsPsych.run([consent, instructions, choices]);
  const made = jsPsych.data.get().filter({ task: "choice" });
  removeEventListener("beforeunload", stay);
  if (!made.count()) return;
  made.addToAll({ subject_id: subject, away_s: away(), bot: navigator.webdriver ? 1 : 0, recruited: String(link[recruiter] ?? "").replace(/[^\w.~:@-]/g, "").slice(0, 128) });
  const csv = made.filterColumns(study.columns).csv();
  const sent = await send(`${subject}.csv`, csv);
  display.innerHTML = texts.end + (sent ? "" : texts.save) + (study.code ? `<p class="code">${study.code}</p>` : "");
  if (!sent) {
    const file = document.createElement("a");
    Object.assign(file, { href: URL.createObjectURL(new Blob([csv], { type: "text/csv" })), download: `${subject}.csv`, textContent: texts.download, className: "jspsych-btn" });
    display.append(file);
  }
  if (study.return_to) {
    const back = document.createElement("a");
    Object.assign(back, { href: study.return_to, textContent: texts.return, className: "jspsych-btn" });
    display.append(back);
  }
})();
