// The card: what would run, why somebody is asked, and the answer. It never changes once it is shown; what becomes of
// the request takes the place of the buttons.

import { Failed, unique } from "./link.js";
import { RISK, riskColor, through, verdict } from "./queue.js";
import { dated, h, icon, left, marked, plural, point, prose, say, span, time, u } from "./text.js";

const SOON = 60_000;
const LAST = 30_000;
const REPLY = 5_000;
const CHUNK = 200; // lines of a diff that are laid out together, and only when they come near
const SIGNS = { add: "+", del: "−" };
const BESIDES = "Besides"; // the arguments that the first view does not tell: shown below it, whatever is looked at
const TYPING = 300;

export class Card {
  #drafts = new Map(); #template = document.querySelector("#t-card"); #observer; #typing; #reply;

  constructor({ link, me, queue, arming, announce, moved }) {
    Object.assign(this, { link, me, queue, arming, announce, moved });
    this.root = document.querySelector("#card");
    this.root.addEventListener("click", (event) => this.#click(event));
    this.root.addEventListener("input", (event) => this.#input(event));
    this.root.addEventListener("keydown", (event) => this.#fieldKey(event));
  }

  $(selector) { return this.root.querySelector(selector); }
  get open() { return Boolean(this.row) && !this.root.hidden; }
  get over() { return this.row && this.link.now() >= Date.parse(this.row.expires); }

  // Show a request, or nothing.
  async show(id) {
    this.#keep();
    this.#observer?.disconnect();
    const item = this.queue.get(id);
    Object.assign(this, { id, row: item?.row, card: undefined, ending: item?.ending, panel: undefined, armed: undefined, seen: false, first: true, scrolls: false, warned: false, sending: undefined, preview: undefined, problem: "", loading: new Set() });
    this.root.hidden = !this.row;
    this.queue.show(id);
    if (!this.row) { this.root.replaceChildren(); return; }
    this.root.replaceChildren(this.#template.content.cloneNode(true));
    this.#head();
    this.refresh();
    await this.load();
  }

  async load() {
    const { id } = this;
    let card;
    try { card = await this.link.ask("show", { requestId: id }); } catch (error) {
      if (id === this.id && error.code) { this.problem = "This request cannot be shown, so it cannot be allowed here."; this.refresh(); }
      return;
    }
    if (id !== this.id || this.card) return;
    this.card = card;
    this.row = card.row;
    this.ending ??= card.ending;
    this.#body();
    this.#restore();
    this.arming.restart();
    this.refresh();
  }

  #head() {
    const { row } = this;
    const risk = this.$(".risk");
    risk.classList.add(riskColor(row));
    point(risk.firstElementChild, row.risk);
    risk.lastElementChild.textContent = RISK[row.risk];
    say(this.$(".asks b"), marked(row.agent));
    const what = row.kind === "execute" || row.kind === "other" ? [] : [" ", u(row.what)];
    say(this.$(".act"), row.kind === "other" ? ["Use ", u(row.tool)] : [row.verb, h("span", { class: "sr" }, " with ", marked(row.tool)), what]);
  }

  // -- the action --

  #body() {
    const { card } = this;
    const looks = card.views.filter((view) => view.name !== BESIDES);
    say(this.$(".seg"), looks.map((view) => h("button", { type: "button", "data-view": view.name, "aria-pressed": "false" }, view.name)));
    this.#look(looks[0].name);
    const besides = card.views.find((view) => view.name === BESIDES);
    this.$(".rest").hidden = !besides;
    if (besides) this.#all(besides, this.$(".rest div"));
    const odd = this.$(".odd");
    odd.hidden = !card.odd?.length;
    say(odd, (card.odd ?? []).map(({ what, mark, note }) => h("li", {}, icon("medium"), h("span", {}, what && h("b", {}, marked(what)), what && mark && ", ", mark && u(mark), what || mark ? ". " : "", note))));
    this.$(".why small").textContent = `${plural(card.questions.length, "hook")} ${card.questions.length === 1 ? "asks" : "ask"}`;
    say(this.$(".why ul"),
      card.questions.map(({ hook, prompt }) => h("li", {}, h("span", { class: "by" }, u(hook)), prose(prompt || "Allow this operation?"))),
      card.claim && h("li", {}, h("span", { class: "by" }, "The agent says"), h("span", { class: "claim" }, prose(card.claim), " ", h("span", { class: "tag" }, "Not checked."))));
    this.#verbs();
  }

  async #look(name) {
    const view = this.card.views.find((each) => each.name === name);
    this.view = name;
    for (const button of this.root.querySelectorAll(".seg button")) button.setAttribute("aria-pressed", String(button.dataset.view === name));
    const shown = this.$(".view");
    shown.className = `view ${view.lines ? "diff u" : name === "Command" || name === "Address" ? "cmd u" : "raw u"}`;
    shown.replaceChildren();
    this.#facts(view);
    await this.#all(view, shown, () => this.view === name);
  }

  // A view to its end, however many parts it comes in. Until all are here, not all is shown.
  async #all(view, shown, wanted = () => true) {
    const { id } = this;
    let part = view;
    if (view.next != null) this.loading.add(view.name);
    while (part) {
      if (part.lines) diff(shown, part.lines);
      else shown.append(...marked(part.text ?? ""));
      if (part.next == null) break;
      try { part = await this.link.ask("more", { requestId: id, view: view.name, start: part.next }); } catch { return; }
      if (id !== this.id || !wanted()) return;
    }
    this.loading.delete(view.name);
    this.#watch();
  }

  #facts(view) {
    const sizes = view.lines
      ? `${plural(view.added, "line")} added · ${view.removed.toLocaleString("en")} removed`
      : plural(view.characters, "character");
    say(this.$(".facts"), h("span", { class: "wide" }, u(this.row.tool), this.card.cwd ? [" in ", u(this.card.cwd)] : "", ` · ${sizes} · `), h("span", { class: "only-phone" }, view.lines ? `+${view.added} −${view.removed} · ` : u(this.row.tool), view.lines ? "" : " · "), h("span", { class: "all-shown" }, "all shown"));
  }

  // Whether what is looked at leaves nothing out: the first view, or the arguments as they are.
  get #telling() { return this.view === this.card.views[0].name || this.view === "Raw"; }

  // What was not shown cannot be allowed: wait until the end of the action has been on screen.
  #watch() {
    this.#observer?.disconnect();
    if (this.seen) return;
    this.#observer = new IntersectionObserver((entries) => {
      if (!this.card || this.loading.size || !this.#telling || !entries.some((entry) => entry.isIntersecting)) {
        if (this.first) { this.first = false; this.scrolls = true; this.refresh(); }
        return;
      }
      const late = this.scrolls;
      Object.assign(this, { seen: true, first: false });
      this.#observer.disconnect();
      if (late) this.arming.restart();
      this.refresh();
    }, { rootMargin: `0px 0px -${matchMedia("(max-width: 720px)").matches ? this.$(".decide").offsetHeight : 0}px 0px` });
    this.#observer.observe(this.$(".end"));
  }

  // -- the answers that are offered --

  #option(kind) { return this.card?.options.find((option) => option.kind === kind); }

  #verbs() {
    const { card } = this;
    const [deny, allow] = [this.#option("reject_once"), this.#option("allow_once")];
    const high = this.row.risk === "high";
    const quiet = (action, label, key, panel) => h("button", { class: "btn quiet", type: "button", "data-do": action, "data-panel": panel, "aria-expanded": panel ? "false" : null }, label, key && h("kbd", { "aria-hidden": "true" }, key));
    const others = card.options.filter((option) => ![deny, allow].includes(option) && option.kind !== "allow_always");
    say(this.$(".more"),
      deny && quiet("panel", "Deny with message", "M", "deny"),
      others.map((option) => { const button = quiet("other", "", "", null); button.dataset.option = option.optionId; say(button, marked(option.name)); return button; }),
      h("span", { class: "gap" }),
      allow && quiet("panel", "Edit", "E", "edit"),
      this.#option("allow_always") && !high && quiet("panel", "Always…", "W", "always"));
    this.$('[data-do="allow"]').hidden = !allow;
    this.$(".decide [data-panel=code]").hidden = !(high && card.options.some((option) => option.kind.startsWith("allow")));
    this.$(".code").textContent = this.row.digest.slice(0, 4).toUpperCase();
    this.$("#args").value = card.edit ?? "";
    if (card.always && !high) this.#reach(card.always);
  }

  #reach(reach) {
    const row = (shape, word, ...text) => [h("dt", {}, icon(shape), word), h("dd", {}, ...text)];
    say(this.$('[data-panel="always"] h2'), "Allow always");
    say(this.$(".reach"), reach.covers.map((each, number) => row("yes", number ? "and" : "Covers", prose(each))), row("no", "Not", prose(reach.leaves)), row("late", "Ends", prose(reach.ends)));
    say(this.$('[data-panel="always"] .panel-foot span'), reach.seen ? `It would have answered ${reach.seen.answered} of this session’s ${plural(reach.seen.of, "request")}.` : "");
    this.$('[data-do="always"]').textContent = "Allow always";
  }

  // Why an answer cannot be given now, for the buttons one by one.
  #locks() {
    const dead = !this.me.mayDecide || this.link.state !== "live" || Boolean(this.sending) || !this.card || Boolean(this.ending) || this.over;
    const wrong = this.row.risk === "high" && this.#text("#code").trim().toUpperCase() !== this.row.digest.slice(0, 4).toUpperCase();
    const message = this.#text("#msg").trim() !== "";
    const edit = this.card && this.#text("#args") !== (this.card.edit ?? "");
    return { deny: dead, other: dead, panel: dead, allow: dead || !this.seen || wrong || message || edit, always: dead || !this.seen || message || edit, edited: dead || wrong || message || !this.preview };
  }

  #text(selector) { return this.$(selector)?.value ?? ""; }

  // -- what is on screen, from what is so --

  refresh() {
    if (!this.row) return;
    const locks = this.#locks();
    for (const button of this.root.querySelectorAll(".decide [data-do]")) {
      const locked = locks[button.dataset.do] || (button.dataset.panel === "always" && !this.seen);
      button.setAttribute("aria-disabled", String(Boolean(locked)));
      button.classList.toggle("armed", this.armed === button.dataset.do && !button.dataset.panel);
      if (button.dataset.panel) button.setAttribute("aria-expanded", String(this.panel === button.dataset.panel));
    }
    const edited = this.$('[data-do="edited"]');
    edited.disabled = locks.edited;
    for (const panel of this.root.querySelectorAll(".decide > .panel")) if (panel.dataset.panel !== "code") panel.hidden = panel.dataset.panel !== this.panel;
    this.$(".below").hidden = !this.scrolls;
    if (this.scrolls) say(this.$(".below span"), this.seen ? "You have seen all of it." : [h("b", {}, "More of this is below."), " Allow wakes when you have seen the last line."]);
    this.$(".all-shown")?.replaceChildren(this.seen || !this.scrolls ? "all shown" : "scroll to see the rest");
    this.#pager();
    this.#then();
    this.#ended();
    this.tick();
  }

  #pager() {
    const { ids } = this.queue;
    const open = ids.filter((id) => !this.queue.get(id).ending);
    const at = open.indexOf(this.id) + 1;
    this.$(".pager .all").textContent = at ? `${at} of ${open.length} waiting` : `Decided · ${open.length} waiting`;
  }

  #then() {
    const { row } = this;
    const then = this.$(".then");
    const by = h("b", {}, dated(Date.parse(row.expires), this.link.now()));
    const falls = h("b", { class: row.default === "allow" ? "c-mid" : null }, row.default === "allow" ? "allowed" : "denied");
    const words = { allow: "allow this once", deny: "deny", always: "allow always", edited: "allow your version", other: "choose this" };
    if (this.problem) say(then, h("b", {}, this.problem));
    else if (this.sending) say(then, this.sending.late ? "No reply yet. It may have counted; checking." : "Sending your answer…");
    else if (this.armed) say(then, h("b", {}, `Press Enter to ${words[this.armed]}.`), " Esc puts it back.");
    else if (this.link.state !== "live") say(then, "Deciding waits. At ", by, " (server time) this is ", falls, ".");
    else say(then, this.me.mayDecide ? "If nobody answers by " : "You can watch but not decide. If nobody answers by ", by, this.soon ? ", in less than a minute" : "", ", this is ", falls, ".");
  }

  #ended() {
    const ended = this.ending || this.over;
    this.$(".decide").hidden = Boolean(ended);
    const outcome = this.$(".outcome");
    const fresh = ended && outcome.hidden;
    outcome.hidden = !ended;
    if (!ended) return;
    const is = this.ending ? verdict(this.ending, this.me.name) : { icon: "late", color: "c-mid" };
    point(outcome.firstElementChild, is.icon, is.color);
    const [said, more] = this.ending ? this.#outcome(is) : [`Time was up at ${time(Date.parse(this.row.expires))}.`, "The server says next what became of it."];
    say(outcome.querySelector("b"), marked(said));
    say(outcome.querySelector("p span"), marked(more));
    outcome.querySelector("button").hidden = !this.queue.next(1, this.id) && !this.queue.next(-1, this.id);
    if (fresh && this.answered) outcome.focus({ preventScroll: true });
  }

  #outcome({ word, who }) {
    const { status, at, reason, channel, message, allowed } = this.ending;
    const when = at ? Date.parse(at) : this.link.now();
    if (word === "Expired") return [`Expired at ${time(when)}. Nobody answered, so it was ${allowed ? "allowed" : "denied"}.`, allowed ? "It was allowed by default, not by a person." : "Nothing ran. The agent was told that time ran out, not that a person said no."];
    if (who === "Nobody" && !channel) return [`${word} at ${time(when)}${reason ? `: ${reason}` : ""}.`, "Nobody has to answer any more. Nothing ran."];
    const did = { Once: "allowed this once", Always: "allowed this always", Edited: "allowed this, edited", Denied: "denied this", "Denied always": "denied this always" }[word];
    const ago = Math.max(0, (this.link.now() - when) / 1000);
    const where = who === "You" ? "" : `, ${ago < 2 ? "just now" : `${span(ago)} ago`}${channel ? `, ${through(channel)}` : ""}`;
    const ran = { approved: "The call is about to run.", claimed: "The call is running.", done: "The call has run.", failed: "The call ran and failed.", unknown: "Whether the call ran to its end is not known." }[status];
    const own = this.answered && who !== "You" ? "Your answer came later and changed nothing. " : "";
    return [`${who} ${did}${where}.`, own + (allowed ? ran ?? "" : message ? `Nothing ran. The agent reads: “${message}”` : "Nothing ran.")];
  }

  tick() {
    if (!this.row) return;
    const now = this.link.now();
    const [created, expires] = [Date.parse(this.row.created), Date.parse(this.row.expires)];
    const remaining = expires - now;
    const [big, small] = this.$(".clock").children;
    if (this.ending) {
      const late = this.ending.status === "expired";
      const took = this.ending.took ?? ((this.ending.at ? Date.parse(this.ending.at) : now) - created) / 1000;
      big.textContent = late ? "0:00" : left(took * 1000);
      small.textContent = late ? "expired" : "to decide";
    } else {
      big.textContent = left(remaining);
      small.textContent = remaining > 0 ? "left to decide" : "time is up";
    }
    const share = this.ending ? 0 : Math.max(0, Math.min(1, remaining / (expires - created)));
    this.$(".fill").setAttribute("width", (100 * share).toFixed(1));
    const soon = !this.ending && remaining > 0 && remaining < SOON;
    this.root.classList.toggle("soon", soon);
    if (soon !== Boolean(this.soon)) { this.soon = soon; this.#then(); }
    if (!this.ending && !this.warned && remaining > 0 && remaining < LAST) {
      this.warned = true;
      this.announce(`Less than 30 seconds left, then this is ${this.row.default === "allow" ? "allowed" : "denied"}.`, true);
    }
    if (!this.ending && remaining <= 0 && !this.$(".decide").hidden) this.refresh();
  }

  // The server says what became of it.
  resolve(ending) {
    this.ending = ending;
    this.problem = "";
    clearTimeout(this.#reply);
    this.sending = undefined;
    this.armed = undefined;
    this.refresh();
    if (!this.answered) this.announce(this.$(".outcome b").textContent);
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
    if (button.dataset.view) { this.arming.restart(); this.#look(button.dataset.view); return; }
    const action = button.dataset.do;
    if (action === "prev" || action === "next" || action === "all") { this.moved(action); return; }
    if (!action || button.getAttribute("aria-disabled") === "true") return;
    const how = this.arming.click(event, button);
    if (!how) return;
    if (action === "panel") this.toggle(button.dataset.panel);
    else if (how === "press" || this.armed === action) this.answer(action, button.dataset.option);
    else this.arm(action, button.dataset.option);
  }

  toggle(panel) {
    if (this.#locks().panel || !this.$(`[data-panel="${panel}"].btn`)) return;
    this.panel = this.panel === panel ? undefined : panel;
    this.armed = undefined;
    this.refresh();
    if (this.panel) this.#focus(this.$(`div[data-panel="${panel}"]`).querySelector("textarea, .btn"));
    else this.$(`[data-panel="${panel}"].btn`).focus();
  }

  #focus(field) {
    field.focus({ preventScroll: true });
    if (field.id === "args" && field.value === this.card.edit) { field.setSelectionRange(0, 0); field.scrollTop = 0; }
  }

  // The first of two steps by key.
  arm(action, option) {
    if (this.#locks()[action]) return;
    this.armed = action;
    this.choice = option;
    this.refresh();
    this.announce(this.$(".then").textContent);
  }

  disarm() {
    if (this.armed) this.armed = undefined;
    else if (this.panel) { const was = this.panel; this.panel = undefined; this.refresh(); this.$(`[data-panel="${was}"].btn`)?.focus(); return; }
    this.refresh();
  }

  confirm() { if (this.armed) this.answer(this.armed, this.choice); }

  answer(action, chosen) {
    if (this.#locks()[action]) return;
    const kind = { deny: "reject_once", allow: "allow_once", edited: "allow_once", always: "allow_always" }[action];
    const option = kind ? this.#option(kind)?.optionId : chosen;
    const refusal = this.card.options.find((each) => !each.kind.startsWith("allow"))?.optionId;
    const decision = { requestId: this.id, digest: this.row.digest, optionId: option ?? (action === "deny" ? refusal : undefined), decisionId: unique() };
    if (!decision.optionId) return;
    const message = this.#text("#msg").trim();
    if (message && !["allow", "always", "edited"].includes(action)) decision.message = message;
    if (action === "edited") decision.arguments = this.preview.text;
    this.answered = true;
    this.armed = undefined;
    this.sending = { decision };
    this.refresh();
    this.#send();
  }

  // The same decision, under the same id, as often as it takes: it counts once.
  async #send() {
    const { sending, id } = this;
    clearTimeout(this.#reply);
    this.#reply = setTimeout(() => { if (this.sending === sending) { sending.late = true; this.refresh(); } }, REPLY);
    let result;
    try { result = await this.link.ask("decide", sending.decision); } catch (error) {
      if (this.sending !== sending) return;
      if (error instanceof Failed && error.code) { this.sending = undefined; this.problem = error.message; }
      else sending.late = true;
      this.refresh();
      return;
    }
    if (result.ending) this.queue.resolve(id, result.ending);
    if (this.sending !== sending) return;
    this.sending = undefined;
    if (result.ending) { this.#drafts.delete(id); this.resolve(result.ending); this.announce(this.$(".outcome b").textContent); return; }
    this.answered = false;
    this.problem = result.refusal?.reason ?? "It did not count.";
    this.refresh();
  }

  // -- fields --

  #input(event) {
    this.armed = undefined;
    this.problem = "";
    if (event.target.id === "args") this.#edited();
    this.refresh();
  }

  #edited() {
    this.preview = undefined;
    clearTimeout(this.#typing);
    const { id } = this;
    const text = this.#text("#args");
    const note = this.$("#args-say");
    const shown = this.$(".panel .small");
    if (text === (this.card.edit ?? "")) { note.textContent = "Your version passes every gate again before it runs."; shown.hidden = true; return; }
    note.textContent = "Checking…";
    this.#typing = setTimeout(async () => {
      let preview, problem;
      try { preview = await this.link.ask("preview", { requestId: id, digest: this.row.digest, arguments: text }); } catch (error) { problem = error.code ? error.message : "Not connected; it is checked later."; }
      if (id !== this.id || this.#text("#args") !== text) return;
      this.preview = preview && { ...preview, text };
      shown.hidden = !preview;
      say(note, problem ? h("b", { class: "c-high" }, marked(problem)) : `${plural(preview.added, "line")} added, ${preview.removed} removed. It passes every gate again before it runs.`);
      if (preview) { shown.firstElementChild.replaceChildren(); diff(shown.firstElementChild, preview.lines); this.arming.restart(); }
      this.refresh();
    }, TYPING);
  }

  #fieldKey(event) {
    if (!event.target.matches("input, textarea")) return;
    if (event.key === "Escape") { event.preventDefault(); event.stopPropagation(); if (event.target.id === "code") event.target.blur(); else this.disarm(); }
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    const action = { msg: "deny", args: "edited", code: "allow" }[event.target.id];
    if (this.arming.key(event)) this.answer(action);
  }

  #keep() {
    if (!this.card || this.ending) return;
    this.#drafts.set(this.id, { message: this.#text("#msg"), args: this.#text("#args"), panel: this.panel });
  }

  #restore() {
    this.answered = false;
    const draft = this.#drafts.get(this.id);
    this.$("#msg").value = draft?.message ?? "";
    if (draft?.args) this.$("#args").value = draft.args;
    this.panel = draft?.panel;
    this.#edited();
  }

  nextView() {
    if (!this.card) return;
    const names = this.card.views.map((view) => view.name).filter((name) => name !== BESIDES);
    this.arming.restart();
    this.#look(names[(names.indexOf(this.view) + 1) % names.length]);
  }
}

// Lines of a diff, appended in chunks that are laid out when they come near.
const diff = (into, lines) => {
  for (let at = 0; at < lines.length; at += CHUNK) {
    into.append(h("div", { class: lines.length > CHUNK ? "chunk" : null }, lines.slice(at, at + CHUNK).map(({ kind, old, new: now, text, pieces }) =>
      h("div", { class: `dl ${kind === "part" ? "skip" : kind}` }, h("i", {}, String(old ?? "")), h("i", {}, String(now ?? "")), h("b", {}, SIGNS[kind] ?? ""),
        h("span", {}, pieces ? pieces.map((piece, number) => (number % 2 ? h("mark", {}, marked(piece)) : marked(piece))).flat() : marked(text))))));
  }
};
