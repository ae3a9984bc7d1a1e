"use strict";

// One reviewer's way through the queue, by the same rules as `flywheel review` in the terminal. Nothing here draws.

const BATCH = 20; // what others label meanwhile disappears with the next batch
const MOST = 500; // as the gateway has it

class Problem extends Error {
  constructor(message, refused = false) {
    super(message);
    this.refused = refused; // by the key: another one may do
  }
}

class Sitting {
  ahead = []; // items to come; the first is on the screen
  past = []; // {item, feedback}, the last one last; no feedback where the item was skipped
  choices = [];
  total = 0;
  more = false; // whether more wait than are counted
  today = 0;

  constructor(author, key, task) {
    Object.assign(this, { author, key, task });
  }

  get item() {
    return this.ahead[0];
  }

  get labelled() {
    return this.past.filter(({ feedback }) => feedback).length;
  }

  get skipped() {
    return this.past.length - this.labelled;
  }

  async refill() {
    const seen = new Set(this.past.map(({ item }) => item.interaction_id));
    const query = new URLSearchParams({ author: this.author, limit: Math.min(MOST, BATCH + seen.size) });
    if (this.task !== null) query.set("task", this.task);
    const found = await this.#ask(`/review/items?${query}`);
    this.task = found.task;
    this.choices = found.choices;
    this.ahead = found.items.filter((item) => !seen.has(item.interaction_id));
    this.total = this.labelled + found.waiting;
    this.more = found.more;
    this.today = found.labelled_today;
  }

  right() {
    const { answer } = this.item;
    return answer.trim() ? this.answer(answer) : this.#say({ kind: "thumb", value: true });
  }

  answer(text) {
    return this.#say({ kind: "label", text });
  }

  wrong() {
    return this.#say({ kind: "thumb", value: false });
  }

  skip() {
    return this.#forward(null);
  }

  async undo() {
    const last = this.past.at(-1);
    if (!last) return;
    if (last.feedback) {
      await this.#post(last.item, { kind: "comment", text: "taken back", supersedes: last.feedback });
      this.today -= 1;
    }
    this.past.pop();
    this.ahead.unshift(last.item);
  }

  again() {
    this.past = this.past.filter(({ feedback }) => feedback);
    return this.refill();
  }

  async #say(what) {
    const feedback = await this.#post(this.item, what);
    this.today += 1;
    await this.#forward(feedback);
  }

  async #forward(feedback) {
    this.past.push({ item: this.ahead.shift(), feedback });
    if (!this.ahead.length) await this.refill();
  }

  async #post({ interaction_id }, what) {
    const whose = { interaction_id, task: this.task, source: "reviewer", author: this.author };
    return (await this.#ask("/v1/feedback", { ...whose, ...what })).id;
  }

  async #ask(path, body) {
    const headers = this.key ? { authorization: `Bearer ${this.key}` } : {};
    const options = { headers, cache: "no-store", credentials: "omit", signal: AbortSignal.timeout(30_000) };
    if (body) {
      headers["content-type"] = "application/json";
      Object.assign(options, { method: "POST", body: JSON.stringify(body) });
    }
    let answer;
    try {
      answer = await fetch(path, options);
    } catch {
      throw new Problem("The gateway does not answer. Try again in a moment.");
    }
    const found = await answer.json().catch(() => ({}));
    if (answer.ok) return found;
    const refused = answer.status === 401 || answer.status === 403;
    throw new Problem(found.error?.message ?? `The gateway answered ${answer.status}.`, refused);
  }
}
