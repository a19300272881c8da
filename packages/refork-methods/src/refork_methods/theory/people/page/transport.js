/* Where answers go: to the study's server at once, or into this browser until the end. */
"use strict";
(() => {
  const Refork = (window.Refork = window.Refork || {});
  const PATIENCE_MS = 10000;
  const WAITS_MS = [400, 800, 1600, 3200, 6400];
  const POSTS = 5;
  const LETTERS = "23456789ABCDEFGHJKMNPQRSTUVWXYZ";

  /** What is kept in the browser: of this study and, where a link names somebody, of that person. */
  class Store {
    constructor(study, person) {
      this.prefix = `refork:${study}:${person}:`;
      this.memory = new Map(); // only what could not be stored
    }
    get(name) {
      const kept = this.memory.get(name);
      if (kept !== undefined) return JSON.parse(kept);
      try {
        return JSON.parse(localStorage.getItem(this.prefix + name)); // another window may have written it
      } catch {
        return null;
      }
    }
    set(name, value) {
      const text = JSON.stringify(value);
      try {
        localStorage.setItem(this.prefix + name, text);
        this.memory.delete(name);
      } catch {
        this.memory.set(name, text); // full or forbidden
      }
    }
  }

  class Refused extends Error {
    constructor(status, message, code) {
      super(message);
      Object.assign(this, { status, code });
    }
  }

  const pause = (ms) => new Promise((done) => setTimeout(done, ms));

  function random(count) {
    return crypto.getRandomValues(new Uint32Array(count));
  }
  const hex = (count) => [...random(count)].map((one) => one.toString(16).padStart(8, "0")).join("");

  /** Send until it arrives, `most` times; `lost` is told while it does not. A refusal is thrown. */
  async function send(address, body, token, lost, most = Infinity) {
    for (let tries = 0; ; tries += 1) {
      const stop = new AbortController();
      const late = setTimeout(() => stop.abort(), PATIENCE_MS);
      try {
        const headers = { "content-type": "application/json" };
        if (token) headers.authorization = `Bearer ${token}`;
        const request = { method: "POST", headers, body: JSON.stringify(body), signal: stop.signal };
        const answer = await fetch(address, { ...request, cache: "no-store" });
        if (answer.ok) {
          const data = await answer.json().catch(() => ({}));
          lost(false);
          return data;
        }
        if (answer.status < 500 && ![408, 425, 429].includes(answer.status)) {
          const said = await answer.json().catch(() => ({}));
          lost(false);
          throw new Refused(answer.status, said.error?.message || `HTTP ${answer.status}`, said.error?.code);
        }
      } catch (error) {
        if (error instanceof Refused) throw error;
      } finally {
        clearTimeout(late);
      }
      if (tries + 1 >= most) {
        lost(false);
        throw new Refused(0, "");
      }
      if (tries > 0) lost(true); // once is no reason for alarm
      await pause(WAITS_MS[Math.min(tries, WAITS_MS.length - 1)]);
    }
  }

  /** Every answer goes to the server and is kept here until it is acknowledged. */
  class Server {
    constructor(study, store, params, lost) {
      Object.assign(this, { study, store, params, lost });
      this.token = store.get("token");
    }
    post(path, body = {}) {
      return send(`api/${path}`, body, this.token, this.lost);
    }
    async hello() {
      if (!this.token) return { status: "new" };
      try {
        const standing = await this.post("standing");
        const waiting = this.store.get("outbox");
        if (waiting && standing.status === "going" && waiting.index === standing.answered) {
          return await this.answer(waiting);
        }
        return standing;
      } catch (error) {
        if (error.status !== 401) throw error;
        return { status: "new" }; // a token of another run of the study
      }
    }
    begin(bot, page) {
      this.token = hex(6);
      this.store.set("token", this.token); // before it is sent: a second try is the same person
      return this.post("begin", { params: this.params, bot, page, texts: this.study.texts_digest });
    }
    async answer(choice) {
      this.store.set("outbox", choice);
      const standing = await this.post("answer", choice);
      this.store.set("outbox", null);
      return standing;
    }
    end(away, bot) {
      return this.post("end", { away_ms: away, bot });
    }
    withdraw() {
      return this.post("withdraw");
    }
  }

  /** No server: entries as its results file would hold them, kept here until they are saved or sent. */
  class Local {
    constructor(study, store, params, lost) {
      Object.assign(this, { study, store, params, lost });
      this.entries = store.get("entries") || [];
    }
    add(kind, body) {
      this.entries.push({ kind, time: Date.now() / 1000, body });
      this.store.set("entries", this.entries);
    }
    get first() {
      return this.entries[0]?.body;
    }
    standing() {
      const kinds = this.entries.map((one) => one.kind);
      const status = kinds.includes("withdraw") ? "withdrawn" : kinds.includes("end") ? "ended" : "going";
      const found = { status, answered: kinds.filter((one) => one === "trial").length, order: this.first.order };
      if (status !== "ended") return found;
      const way = this.first.recruited?.recruiter === "prolific" ? this.study.return.prolific : null;
      const back = (way || this.study.return.any)?.replace("{code}", encodeURIComponent(this.first.code));
      return { ...found, code: this.first.code, return: back, saved: this.store.get("sent") === true };
    }
    async hello() {
      if (!this.first) return { status: "new" };
      const standing = this.standing();
      if (standing.status === "ended" && this.study.post && !standing.saved) await this.sendAll();
      return this.standing();
    }
    async begin(bot, page) {
      const own = [...random(10)].map((one) => LETTERS[one % LETTERS.length]).join("");
      const recruited = Refork.recruited(this.study, this.params);
      this.add("begin", {
        participant: `p-${hex(2).slice(0, 12)}`, token: "", order: this.shuffled(), texts: this.study.texts_digest,
        recruited, bot, page, code: this.study.code || own,
      });
      return this.standing();
    }
    shuffled() {
      const { total, stimuli } = this.study;
      const order = Array.from({ length: total }, (_, place) => place % stimuli.length);
      const draws = random(total);
      for (let last = total - 1; last > 0; last -= 1) {
        const other = draws[last] % (last + 1);
        [order[last], order[other]] = [order[other], order[last]];
      }
      return order;
    }
    async answer(choice) {
      const at = this.store.get("entries") || this.entries;
      if (at.length > this.entries.length) throw new Refused(409, "", "order");
      this.add("trial", { participant: this.first.participant, ...choice });
      return this.standing();
    }
    async end(away, bot) {
      this.add("end", { participant: this.first.participant, away_ms: away, bot });
      if (this.study.post) await this.sendAll();
      return this.standing();
    }
    async withdraw() {
      this.entries = this.entries.slice(0, 1); // nothing of what was answered stays
      this.add("withdraw", { participant: this.first.participant });
      return this.standing();
    }
    /** Send the answers where the study wants them; where that fails, the person is asked to save them. */
    async sendAll() {
      try {
        await send(this.study.post, this.file(), null, this.lost, POSTS);
        this.store.set("sent", true);
      } catch (error) {
        if (!(error instanceof Refused)) throw error;
      }
    }
    file() {
      return { format: "refork-people", header: this.study.header, entries: this.entries };
    }
  }

  /** The person that the address names, as the server would read it; null: nobody. */
  Refork.recruited = (study, params) => {
    const names = study.recruiters.find((one) => params[one.person]);
    if (!names) return null;
    const of = (name) => (name && params[name]) || null;
    return { recruiter: names.name, person: of(names.person), study: of(names.study), session: of(names.session) };
  };
  Refork.Store = Store;
  Refork.Refused = Refused;
  Refork.transport = (study, ...rest) => new (study.mode === "server" ? Server : Local)(study, ...rest);
})();
