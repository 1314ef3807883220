// The card: the action, the reasons for asking, and the answer. A shown card never changes; the end of the request
// takes the place of the buttons.

import { diff } from "./diff.js";
import { unique } from "./link.js";
import { dated, h, icon, left, marked, plural, point, prose, say, time, u } from "./text.js";
import { RISK, inFull, riskColor, verdict } from "./words.js";

const SOON = 60_000;
const LAST = 30_000;
const REPLY = 5_000;
const TYPING = 300;
const NEXT = 1_500; // for so long the end of a request is shown before the next one comes
const BESIDES = "Besides"; // the arguments that the first view leaves out: shown below every view
const DOES = {
  deny: "deny", allow: "allow this once", always: "allow always", edited: "allow your version", other: "choose this",
};
const FRESH = {
  card: undefined, panel: undefined, members: [], listed: false, armed: undefined, sending: undefined, preview: undefined, problem: "",
  ready: false, seen: false, scrolls: false, soon: false, warned: false, answered: false,
};

export class Card {
  #drafts = new Map();
  #template = document.querySelector("#t-card");
  #typing;
  #reply;

  constructor({ link, me, queue, arming, announce, moved }) {
    Object.assign(this, { link, me, queue, arming, announce, moved });
    this.root = document.querySelector("#card");
    this.root.addEventListener("click", (event) => this.#click(event));
    this.root.addEventListener("input", (event) => this.#input(event));
    this.root.addEventListener("keydown", (event) => this.#fieldKey(event));
    for (const moving of ["scroll", "resize"]) {
      addEventListener(moving, () => this.check(), { capture: true, passive: true });
    }
  }

  $(selector) { return this.root.querySelector(selector); }
  get open() { return Boolean(this.row); }
  get over() { return this.link.now() >= Date.parse(this.row.expires); }
  get code() { return this.row.digest.slice(0, 4).toUpperCase(); }

  // Show a request, or nothing.
  async show(id) {
    this.#keep();
    const item = this.queue.get(id);
    Object.assign(this, FRESH, { id, row: item?.row, ending: item?.ending, loading: new Set() });
    this.root.hidden = !this.row;
    this.queue.show(id);
    this.root.replaceChildren(...(this.row ? [this.#template.content.cloneNode(true)] : []));
    if (!this.row) return;
    this.#head();
    this.refresh();
    await this.load();
  }

  async load() {
    const { id } = this;
    let card;
    try {
      card = await this.link.ask("show", { requestId: id });
    } catch (error) {
      if (id !== this.id || !error.code) return; // the page tries again when it is connected
      this.problem = "This request cannot be shown, so it cannot be allowed here.";
      this.refresh();
      return;
    }
    if (id !== this.id || this.card) return;
    Object.assign(this, { card, row: card.row, ending: this.ending ?? card.ending });
    this.#body();
    this.#verbs();
    this.#restore();
    this.arming.restart();
    this.refresh();
    this.ready = true;
    this.check();
  }

  // -- the action --

  #head() {
    const { row } = this;
    const risk = this.$(".risk");
    risk.classList.add(riskColor(row));
    point(risk.firstElementChild, row.risk);
    risk.lastElementChild.textContent = RISK[row.risk];
    say(this.$(".asks b"), marked(row.agent));
    this.$(".asks span").textContent = row.kind === "execute" ? " run" : "";
    if (row.kind === "other") say(this.$(".act"), "Use ", u(row.tool));
    else if (row.kind === "execute") {
      say(this.$(".act"), h("span", { class: "sr" }, row.verb, " with ", marked(row.tool), ": "), u(row.what));
    } else say(this.$(".act"), row.verb, " ", u(row.what));
  }

  #body() {
    const { card } = this;
    const looks = card.views.filter((view) => view.name !== BESIDES);
    const besides = card.views.find((view) => view.name === BESIDES);
    say(this.$(".seg"), looks.map(({ name }) => h("button", { type: "button", "data-view": name }, name)));
    this.turn(looks[0].name);
    this.$(".rest").hidden = !besides;
    if (besides) this.#all(besides, this.$(".rest div"));
    this.$(".impacts").hidden = !card.impactLines.length;
    say(this.$(".impacts"), card.impactLines.map(({ text, bounded }) =>
      h("li", { class: bounded ? "bounded" : null }, u(text))));
    this.$(".odd").hidden = !card.odd.length;
    say(this.$(".odd"), card.odd.map(({ what, mark, note }) =>
      h("li", {}, icon("medium"), h("span", {}, h("b", {}, marked(what)), mark && [", ", u(mark)], ". ", note))));
    const level = RISK[this.row.risk];
    say(this.$(".risk-why"), card.riskReasons.slice(0, 1).map((one) => prose(one.reason)));
    const count = card.questions.length;
    this.$(".why small").textContent = `${plural(count, "hook")} ${count === 1 ? "asks" : "ask"}`;
    say(this.$(".why ul"),
      card.questions.map(({ hook, prompt }) => reason(u(hook), prose(prompt || "Allow this operation?"))),
      card.riskReasons.map((one) => reason(level,
        h("span", {}, prose(one.reason), " ", h("span", { class: "tag" }, "says ", u(one.by))))),
      card.claim && reason("The agent says",
        h("span", { class: "claim" }, prose(card.claim), " ", h("span", { class: "tag" }, "Not checked."))));
  }

  // Shows another view of the action.
  async turn(name) {
    const view = this.card.views.find((each) => each.name === name);
    this.view = name;
    for (const button of this.root.querySelectorAll(".seg button")) {
      button.setAttribute("aria-pressed", String(button.dataset.view === name));
    }
    const shown = this.$(".view");
    shown.className = `view u ${view.lines ? "diff" : "raw"}`;
    shown.replaceChildren();
    this.#facts(view);
    await this.#all(view, shown, () => this.view === name);
  }

  turnOn() {
    if (!this.card) return;
    const names = this.card.views.map((view) => view.name).filter((name) => name !== BESIDES);
    this.arming.restart();
    this.turn(names[(names.indexOf(this.view) + 1) % names.length]);
  }

  // Loads a view to its end, in any number of parts. Until all parts are here, the action counts as not shown.
  async #all(view, shown, wanted = () => true) {
    const { id } = this;
    if (view.next != null) this.loading.add(view.name);
    for (let part = view; ;) {
      if (part.lines) diff(shown, part.lines);
      else shown.append(...marked(part.text ?? ""));
      if (part.next == null) break;
      try {
        part = await this.link.ask("more", { requestId: id, view: view.name, start: part.next });
      } catch { return; }
      if (id !== this.id || !wanted()) return;
    }
    this.loading.delete(view.name);
    this.check();
  }

  #facts(view) {
    const { row, card } = this;
    const size = view.lines
      ? `${plural(view.added, "line")} added · ${view.removed.toLocaleString("en")} removed`
      : plural(view.characters, "character");
    say(this.$(".facts"),
      h("span", { class: "wide" }, u(row.tool), card.cwd && [" in ", u(card.cwd)], ` · ${size}`),
      h("span", { class: "only-phone" }, view.lines ? `+${view.added} −${view.removed}` : u(row.tool)),
      " · ", h("span", { class: "all" }));
  }

  // An action that was not shown cannot be allowed: its end has to have been on screen, in a view that leaves nothing
  // out, as the first view and the raw arguments do.
  check() {
    this.#checkMembers();
    if (!this.ready || this.seen || this.ending || document.hidden) return;
    const end = this.$(".end").getBoundingClientRect();
    const bottom = this.$(".decide").getBoundingClientRect().top + 1;
    const whole = !this.loading.size && (this.view === this.card.views[0].name || this.view === "Raw");
    this.seen = whole && end.width > 0 && end.top >= 0 && end.bottom <= bottom;
    if (!this.seen && this.scrolls) return;
    if (this.seen && this.scrolls) this.arming.restart();
    this.scrolls ||= !this.seen;
    this.refresh();
  }

  // The actions of a group can be allowed once the last of them has been on screen.
  #checkMembers() {
    const last = this.panel === "group" && !this.listed && this.$(".members").lastElementChild;
    if (!last || document.hidden) return;
    const [inner, outer] = [last.getBoundingClientRect(), last.parentElement.getBoundingClientRect()];
    this.listed = inner.width > 0 && inner.bottom <= Math.min(outer.bottom, innerHeight) + 1;
    if (this.listed) { this.arming.restart(); this.refresh(); }
  }

  // -- the answers that are offered --

  #option(kind) { return this.card.options.find((option) => option.kind === kind); }

  #verbs() {
    const { card, row } = this;
    const [deny, allow] = [this.#option("reject_once"), this.#option("allow_once")];
    const always = card.options.filter(({ kind }) => kind === "allow_always");
    const [denies, allows] = [this.$("[data-do=deny]"), this.$("[data-do=allow]")];
    denies.hidden = !deny;
    allows.hidden = !allow;
    denies.dataset.option = deny?.optionId;
    allows.dataset.option = this.$("[data-do=edited]").dataset.option = allow?.optionId;
    say(this.$("div[data-panel=always] .panel-foot"), always.map(({ optionId, name }) =>
      h("button", { class: "btn say", type: "button", "data-do": "always", "data-option": optionId }, marked(name))));
    const every = { reject_once: deny, allow_once: allow };
    for (const button of this.root.querySelectorAll("[data-do=every]")) {
      button.dataset.option = every[button.dataset.kind]?.optionId ?? "";
      button.hidden = !button.dataset.option;
    }
    const known = [deny, allow, ...always];
    const others = card.options.filter((option) => !known.includes(option));
    say(this.$(".more"),
      deny && opener("deny", "Deny with message", "M"),
      others.map(({ optionId, name, kind }) =>
        h("button", { ...QUIET, "data-do": "other", "data-option": optionId, "data-kind": kind }, marked(name))),
      h("span", { class: "gap" }),
      allow && card.edit != null && opener("edit", "Edit", "E"),
      always.length > 0 && opener("always", "Always…", "W"));
    this.$("div[data-panel=code]").hidden = row.risk !== "high" || !card.options.some(permits);
    this.$(".code").textContent = this.code;
    this.$("#args").value = card.edit ?? "";
    if (always.length) this.#reach(card.always);
  }

  #reach({ covers, leaves, ends, soFar }) {
    const row = (shape, word, text) => [h("dt", {}, icon(shape), word), h("dd", {}, prose(text))];
    say(this.$(".reach"), covers.map((text, number) => row("yes", number ? "and" : "Covers", text)),
      row("no", "Not", leaves), row("late", "Ends", ends), soFar && row("gone", "So far", soFar));
  }

  // Returns true if a button would do nothing now.
  #locked({ dataset }) {
    const { row, card } = this;
    if (!card || this.ending || this.sending || this.over) return true;
    if (!this.me.mayDecide || this.link.state !== "live") return true;
    const allows = ["allow", "always", "edited"].includes(dataset.do) || permits({ kind: dataset.kind ?? "" });
    if (!allows) return dataset.panel === "always" && !this.seen;
    const unproved = row.risk === "high" && this.#text("#code").trim().toUpperCase() !== this.code;
    const unsent = dataset.do === "edited" ? !this.preview : this.#text("#args") !== (card.edit ?? "");
    const unlisted = dataset.do === "every" && !this.listed;
    return !this.seen || unproved || unsent || unlisted || this.#text("#msg").trim() !== "";
  }

  #text(selector) { return this.$(selector)?.value ?? ""; }

  // -- the screen, drawn from the state --

  refresh() {
    if (!this.row) return;
    for (const button of this.root.querySelectorAll(".decide [data-do]")) {
      button.setAttribute("aria-disabled", String(this.#locked(button)));
      button.classList.toggle("armed", this.armed === button);
      if (button.dataset.panel) button.setAttribute("aria-expanded", String(this.panel === button.dataset.panel));
    }
    for (const panel of this.root.querySelectorAll("div[data-panel]")) {
      if (panel.dataset.panel !== "code") panel.hidden = panel.dataset.panel !== this.panel;
    }
    this.$(".below").hidden = !this.scrolls;
    say(this.$(".below span"), this.seen ? "You have seen all of it."
      : [h("b", {}, "More of this is below."), " Allow wakes when you have seen the last line."]);
    this.$(".facts .all")?.replaceChildren(this.seen || !this.scrolls ? "all shown" : "scroll to see the rest");
    const { waiting } = this.queue;
    const at = waiting.indexOf(this.id) + 1;
    this.$(".pager .all").textContent = `${at || "Decided ·"} ${at ? "of " : ""}${waiting.length} waiting`;
    this.#alike();
    this.#then();
    this.#ended();
    this.tick();
  }

  #alike() {
    const others = this.queue.alike(this.id).length - 1;
    this.$(".alike").hidden = !this.card || (others < 1 && this.panel !== "group");
    this.$(".alike span").textContent = `${plural(others, "request")} like this ${others === 1 ? "waits" : "wait"}, too.`;
  }

  // Lists a group as it is now: the list stays as it is while it is open.
  #list() {
    this.members = this.queue.alike(this.id);
    this.listed = false;
    const count = this.members.length;
    this.$("[data-panel=group] small").textContent = `· ${plural(count, "decision")}, one for each`;
    say(this.$(".members"), this.members.map((row) => h("li", {}, u(row.line))));
    this.$("[data-do=every][data-kind=reject_once]").textContent = `Deny all ${count}`;
    this.$("[data-do=every][data-kind=allow_once]").textContent = `Allow all ${count} once`;
  }

  #then() {
    const { row } = this;
    const then = this.$(".then");
    const allows = row.default === "allow";
    const by = h("b", {}, dated(Date.parse(row.expires), this.link.now()));
    const falls = h("b", { class: allows ? "c-mid" : null }, allows ? "allowed" : "denied");
    const soon = this.soon ? ", in less than a minute" : "";
    const may = this.me.mayDecide ? "" : "You can watch but not decide. ";
    if (this.problem) say(then, h("b", {}, marked(this.problem)));
    else if (this.sending?.late) say(then, "No reply yet. It may have counted; checking.");
    else if (this.sending) say(then, "Sending your answer…");
    else if (this.armed) say(then, h("b", {}, `Press Enter to ${does(this.armed)}.`), " Esc puts it back.");
    else if (this.link.state !== "live") say(then, "Answering waits. At ", by, " (server time) this is ", falls, ".");
    else say(then, `${may}Without an answer by `, by, `${soon}, this is `, falls, ".");
  }

  #ended() {
    const ended = Boolean(this.ending) || this.over;
    const outcome = this.$(".outcome");
    const fresh = ended && outcome.hidden;
    this.$(".decide").hidden = ended;
    outcome.hidden = !ended;
    if (!ended) return;
    const is = this.ending ? verdict(this.ending, this.me.name) : { icon: "late", color: "c-mid" };
    const [said, more] = this.ending
      ? inFull(this.ending, this.me.name, this.link.now(), this.answered)
      : [`Time was up at ${time(Date.parse(this.row.expires))}.`, "The server sends the result next."];
    point(outcome.firstElementChild, is.icon, is.color);
    say(outcome.querySelector("b"), marked(said));
    say(outcome.querySelector("p span"), marked(more));
    outcome.querySelector("button").hidden = !this.queue.waiting.some((id) => id !== this.id);
    if (fresh && this.answered) outcome.focus({ preventScroll: true });
  }

  tick() {
    if (!this.row) return;
    const now = this.link.now();
    const [created, expires] = [Date.parse(this.row.created), Date.parse(this.row.expires)];
    const remaining = this.ending ? 0 : expires - now;
    const [big, small] = this.$(".clock").children;
    if (this.ending) {
      const expired = this.ending.status === "expired";
      const took = (this.ending.at ? Date.parse(this.ending.at) : now) - created;
      big.textContent = left(expired ? 0 : took);
      small.textContent = expired ? "expired" : this.ending.by ? "answer time" : "until its end";
    } else {
      big.textContent = left(remaining);
      small.textContent = remaining > 0 ? "left to answer" : "time is up";
    }
    this.$(".fill").setAttribute("width", (100 * Math.max(0, Math.min(1, remaining / (expires - created)))).toFixed(1));
    const soon = remaining > 0 && remaining < SOON;
    if (soon !== this.soon) {
      this.soon = soon;
      this.root.classList.toggle("soon", soon);
      this.#then();
    }
    if (remaining > 0 && remaining < LAST && !this.warned) {
      this.warned = true;
      const falls = this.row.default === "allow" ? "allowed" : "denied";
      this.announce(`Less than 30 seconds left, then this is ${falls}.`, true);
    }
    if (!this.ending && remaining <= 0 && this.$(".outcome").hidden) this.refresh();
  }

  // Shows the end of the request, as the server sent it.
  resolve(ending) {
    clearTimeout(this.#reply);
    Object.assign(this, { ending, problem: "", sending: undefined, armed: undefined });
    this.#drafts.delete(this.id);
    this.refresh();
    this.announce(this.$(".outcome b").textContent);
  }

  // The connection came or went.
  linked() {
    this.armed = undefined;
    if (this.link.state === "live" && this.row) {
      this.arming.restart();
      if (!this.card) this.load();
      else if (this.loading.size && !this.ending) this.show(this.id);
      if (this.sending) this.#send();
    }
    this.refresh();
  }

  // -- answering --

  #click(event) {
    const button = event.target.closest("button");
    if (!button) return;
    const { view, panel, do: action } = button.dataset;
    if (view) { this.arming.restart(); this.turn(view); return; }
    if (["prev", "next", "all"].includes(action)) { this.moved(action); return; }
    if (!action || this.#locked(button)) return;
    const how = this.arming.click(event, button);
    if (how && panel) this.toggle(panel);
    else if (how === "press" || (how && this.armed === button)) this.#answer(button);
    else if (how) this.arm(button);
  }

  toggle(panel) {
    const button = this.$(`button[data-panel=${panel}]`);
    if (!button || this.#locked(button)) return;
    if (panel === "group" && this.panel !== panel && this.queue.alike(this.id).length < 2) return;
    this.panel = this.panel === panel ? undefined : panel;
    this.armed = undefined;
    if (this.panel === "group") this.#list();
    this.refresh();
    this.check();
    const field = this.panel ? this.$(`div[data-panel=${panel}]`).querySelector("textarea, ol, button") : button;
    field.focus({ preventScroll: true });
    if (field.id === "args" && field.value === this.card.edit) { field.setSelectionRange(0, 0); field.scrollTop = 0; }
  }

  // The first of two steps by key: `Enter` is the second.
  arm(button) {
    if (!button || button.hidden || this.#locked(button)) return;
    this.armed = button;
    this.refresh();
    this.announce(this.$(".then").textContent);
  }

  // Put back what was armed, else close the panel, whose text stays.
  back() {
    const { armed, panel } = this;
    this.armed = undefined;
    if (!armed) this.panel = undefined;
    this.refresh();
    if (!armed && panel) this.$(`button[data-panel=${panel}]`)?.focus();
  }

  confirm() { if (this.armed) this.#answer(this.armed); }

  #answer(button) {
    if (this.#locked(button) || !button.dataset.option) return;
    const { do: action, option, kind } = button.dataset;
    const rows = action === "every" ? this.members : [this.row];
    const decisions = rows.map(({ requestId, digest }) =>
      ({ requestId, digest, optionId: option, decisionId: unique() }));
    const [decision] = decisions;
    const message = this.#text("#msg").trim();
    if (message && (action === "deny" || (kind && !permits({ kind })))) decision.message = message;
    if (action === "edited") decision.arguments = this.preview.text;
    Object.assign(this, { answered: true, armed: undefined, sending: { decisions } });
    this.refresh();
    this.#send();
  }

  // Sends each decision, under one id, as often as it takes: it counts once. The first is about this card.
  async #send() {
    const { sending, id } = this;
    const late = () => { if (this.sending === sending) { sending.late = true; this.refresh(); } };
    clearTimeout(this.#reply);
    this.#reply = setTimeout(() => { late(); this.link.probe(); }, REPLY);
    const replies = await Promise.all(sending.decisions.map((decision) => this.#decide(decision)));
    if (replies.includes(undefined)) { late(); return; } // sent again once there is a connection
    const [own, ...others] = replies;
    const failed = others.filter(({ accepted }) => !accepted).length;
    if (own.accepted) this.#goOn(id);
    if (failed) this.announce(`${plural(failed, "answer")} did not count; the queue shows which.`);
    if (this.sending !== sending) return; // the server's notification came first
    if (own.ending) { this.resolve(own.ending); return; }
    clearTimeout(this.#reply);
    const problem = own.refusal?.reason ?? "It did not count.";
    Object.assign(this, { sending: undefined, answered: false, problem });
    this.refresh();
  }

  // Returns the reply to one decision; undefined if the connection broke before it came.
  async #decide(decision) {
    try {
      const reply = await this.link.ask("decide", decision);
      if (reply.ending) this.queue.resolve(decision.requestId, reply.ending);
      return reply;
    } catch (error) {
      return error.code ? { accepted: false, refusal: { reason: error.message } } : undefined;
    }
  }

  // The next request comes by itself, once the end of this one could be read.
  #goOn(id) {
    setTimeout(() => { if (this.id === id && this.ending && this.queue.waiting.length) this.moved("on"); }, NEXT);
  }

  // -- fields --

  #input({ target }) {
    this.armed = undefined;
    this.problem = "";
    if (target.id === "args") this.#edited();
    this.refresh();
  }

  // Arguments are checked by the server as they are written, and shown as a change before they can be sent.
  #edited() {
    const { id } = this;
    const text = this.#text("#args");
    const note = this.$("#args-say");
    const shown = this.$(".panel .small");
    this.preview = undefined;
    clearTimeout(this.#typing);
    if (text === (this.card.edit ?? "")) {
      note.textContent = "Your version passes every gate again before it runs.";
      shown.hidden = true;
      return;
    }
    note.textContent = "Checking…";
    this.#typing = setTimeout(async () => {
      let preview, problem;
      try {
        preview = await this.link.ask("preview", { requestId: id, digest: this.row.digest, arguments: text });
      } catch (error) {
        problem = error.code ? error.message.replace(/^Invalid params: /, "") : "Not connected: not checked.";
      }
      if (id !== this.id || this.#text("#args") !== text) return;
      this.preview = preview && { ...preview, text };
      shown.hidden = !preview;
      if (problem) say(note, h("b", { class: "c-high" }, marked(problem)));
      else {
        const size = `${plural(preview.added, "line")} added, ${preview.removed} removed.`;
        say(note, `${size} It passes every gate again before it runs.`);
        shown.firstElementChild.replaceChildren();
        diff(shown.firstElementChild, preview.lines);
        this.arming.restart();
      }
      this.refresh();
    }, TYPING);
  }

  #fieldKey(event) {
    const { key, target } = event;
    if (!target.matches("input, textarea")) return;
    if (key === "Escape") {
      event.preventDefault();
      event.stopPropagation();
      if (target.id === "code") target.blur(); else this.back();
    }
    if (key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    const action = { msg: "deny", args: "edited", code: "allow" }[target.id];
    if (this.arming.key(event)) this.#answer(this.$(`[data-do=${action}]`));
  }

  #keep() {
    if (!this.card || this.ending) return;
    this.#drafts.set(this.id, { message: this.#text("#msg"), args: this.#text("#args"), panel: this.panel });
  }

  #restore() {
    const draft = this.#drafts.get(this.id);
    this.$("#msg").value = draft?.message ?? "";
    if (draft?.args) this.$("#args").value = draft.args;
    this.panel = draft?.panel === "group" ? undefined : draft?.panel;
    this.#edited();
  }
}

const QUIET = { class: "btn quiet", type: "button" };
const does = ({ dataset, textContent }) => DOES[dataset.do] ?? textContent.toLowerCase();
const permits = ({ kind }) => kind.startsWith("allow");
const reason = (by, said) => h("li", {}, h("span", { class: "by" }, by), said);
const opener = (panel, label, key) =>
  h("button", { ...QUIET, "data-do": "panel", "data-panel": panel, "aria-expanded": "false" },
    label, h("kbd", { "aria-hidden": "true" }, key));
