// History, grants, and the rail beside the card.

import { dated, h, icon, marked, plural, prose, say, span, time, u } from "./text.js";
import { RISK, verdict } from "./words.js";

const PAGE = 100;
const LINES = 60;
const SHOW = {
  all: () => true,
  allowed: ({ ending }) => Boolean(ending.by) && ending.allowed,
  denied: ({ ending }) => Boolean(ending.by) && !ending.allowed,
  expired: ({ ending }) => ending.status === "expired",
  withdrawn: ({ ending }) => !ending.by && ending.status !== "expired",
};
const NOTES = {
  failed: "It ran and failed.",
  unknown: "It is unknown if it ran to its end.",
  approved: "It has not run yet.",
};

export class History {
  #entries = [];
  #shown = "all";

  constructor(link, me) {
    Object.assign(this, { link, me });
    this.root = document.querySelector("#history");
    this.root.addEventListener("click", ({ target }) => {
      const chip = target.closest("[data-show]");
      if (!chip) return;
      this.#shown = chip.dataset.show;
      for (const each of this.root.querySelectorAll("[data-show]")) {
        each.setAttribute("aria-pressed", String(each === chip));
      }
      this.#rows();
    });
  }

  async load() {
    try {
      this.#entries = (await this.link.ask("history", { limit: PAGE })).entries;
    } catch { return; }
    this.#rows();
  }

  #rows() {
    const found = this.#entries.filter(SHOW[this.#shown]);
    const heads = ["Time", "Answer", "Action", "Who"].map((word) => h("span", {}, word));
    say(this.root.querySelector("#history-sum"), this.#summary());
    say(this.root.querySelector("#history-rows"), found.length
      ? [h("div", { class: "hrow head", "aria-hidden": "true" }, heads, h("span", { class: "took" }, "Took")),
        found.map((entry) => this.#row(entry))]
      : h("p", { class: "void" }, "There is none."));
  }

  #summary() {
    if (!this.#entries.length) return "Nothing has been decided yet.";
    const count = (show) => this.#entries.filter(SHOW[show]).length;
    const took = this.#entries.filter(({ ending }) => ending.took != null).map(({ ending }) => ending.took);
    const middle = took.sort((a, b) => a - b)[took.length >> 1];
    return `The last ${plural(this.#entries.length, "request")}: ${count("allowed")} allowed, ${count("denied")} `
      + `denied, ${count("expired")} expired, ${count("withdrawn")} withdrawn.${took.length ? ` Median answer time: ${span(middle)}.` : ""}`;
  }

  #row({ row, ending }) {
    const is = verdict(ending, this.me.name);
    const at = Date.parse(ending.at ?? row.created);
    const where = ending.channel ?? (ending.status === "expired" ? "default" : "");
    return h("div", { class: "hrow" },
      h("time", {}, dated(at, this.link.now())),
      h("span", { class: `verdict ${is.color}` }, icon(is.icon), is.word),
      h("div", { class: "what" }, h("b", {}, marked(row.tool)), " ", u(row.summary ?? row.what),
        h("p", {}, h("span", { class: "sr" }, `${RISK[row.risk]}. `), this.#why(row, ending))),
      h("div", { class: "who" }, marked(is.who), h("p", {}, marked(where))),
      h("span", { class: "took wide" }, ending.took == null ? "" : span(ending.took)));
  }

  #why(row, ending) {
    if (ending.message) return ["“", prose(ending.message), "”"];
    const note = NOTES[ending.status];
    if (ending.by) return [prose(row.agent), " · ", prose(row.session), note && ` · ${note}`];
    if (ending.status === "expired") return `No answer; ${ending.allowed ? "allowed" : "denied"} by default`;
    return prose(ending.reason || "Taken back");
  }
}

export class Grants {
  constructor(link, me, announce) {
    Object.assign(this, { link, me, announce });
    this.root = document.querySelector("#grant-rows");
    this.root.addEventListener("click", ({ target, isTrusted }) => {
      const button = target.closest("button");
      if (button && isTrusted) this.#revoke(button);
    });
  }

  async load() {
    let grants;
    try {
      ({ grants } = await this.link.ask("grants"));
    } catch { return; }
    say(this.root, grants.length
      ? grants.map((grant) => this.#row(grant))
      : h("p", { class: "void" }, "There is none. “Always” on a card makes one."));
  }

  #row(grant) {
    const now = this.link.now();
    const ends = grant.expires
      ? `ends ${dated(Date.parse(grant.expires), now)}`
      : ["ends with session ", prose(grant.session ?? "")];
    return h("div", { class: "grant" },
      h("div", {},
        h("p", {}, icon(grant.allows ? "yes" : "no", grant.allows ? "c-good" : "c-ink"),
          h("b", {}, grant.allows ? "Allowed" : "Denied"), " ", prose(grant.covers)),
        h("small", {}, grant.by === this.me.name ? "You" : marked(grant.by), `, ${dated(Date.parse(grant.since), now)}`,
          " · ", ends, grant.times && ` or after ${grant.times} calls`, " · answers hook ", u(grant.hook), grant.version && [" version ", u(grant.version)]),
        grant.used > 0 && h("small", {}, `Covered ${grant.used} ${grant.used === 1 ? "call" : "calls"}`,
          grant.uses.map((use) => [" · ", u(use.tool), " ", u(use.action)]))),
      h("button", { class: "btn line", type: "button", "data-grant": grant.grantId, disabled: !this.me.mayDecide },
        "Revoke", h("span", { class: "sr" }, " ", marked(grant.covers))));
  }

  async #revoke(button) {
    button.disabled = true;
    try {
      const { revoked } = await this.link.ask("revoke", { grantId: button.dataset.grant });
      this.announce(revoked ? "Revoked." : "It was not in force any more.");
    } catch {
      button.disabled = false;
      this.announce("Not revoked: no connection.");
      return;
    }
    await this.load();
  }
}

export class Rail {
  #lines = [];
  #session;

  constructor(link, me) {
    Object.assign(this, { link, me, tail: false });
    this.root = document.querySelector("#rail");
    this.facts = document.querySelector("#facts");
  }

  show(row, card) {
    this.root.hidden = !row;
    if (!row) return;
    const fact = (name, ...text) => [h("dt", {}, name), h("dd", {}, ...text)];
    const digest = row.digest.slice(0, 16).match(/.{1,4}/g) ?? [];
    this.askedAt = Date.parse(row.created);
    this.asked = h("span");
    say(this.facts,
      fact("Session", prose(row.session)),
      fact("Agent", u(row.agent)),
      card?.cwd && fact("Directory", u(card.cwd)),
      row.tenant && fact("Tenant", u(row.tenant)),
      fact("Tool", u(row.tool)),
      card?.event && fact("Event", u(card.event)),
      fact("Asked", time(this.askedAt), this.asked),
      fact("Ends", dated(Date.parse(row.expires), this.link.now()), row.resumable && ", run can resume later"),
      fact("Request", u(row.requestId)),
      fact("Digest", h("span", { class: "u", title: row.digest }, digest.join(" "))));
    this.tick();
    this.#follow(row);
  }

  tick() {
    if (!this.asked || this.link.state !== "live") return;
    this.asked.textContent = `, ${span(Math.max(0, (this.link.now() - this.askedAt) / 1000))} ago`;
  }

  async #follow(row) {
    document.querySelector("#tail-part").hidden = !this.tail;
    if (!this.tail || this.link.state !== "live") return;
    if (this.#session === row.sessionId) return;
    this.#session = row.sessionId;
    this.#lines = [];
    this.#paint();
    try {
      const { lines } = await this.link.ask("tail", { sessionId: row.sessionId, on: true });
      if (this.#session === row.sessionId) this.#add(lines);
    } catch { this.#session = undefined; }
  }

  // A new connection follows nothing yet.
  linked(row) {
    const live = this.link.state === "live";
    document.querySelector("#tail-state").textContent = live ? "live" : `stopped at ${time(this.link.at(this.link.heard))}`;
    if (live) this.#session = undefined;
    if (live && row) this.#follow(row);
  }

  line(sessionId, line) { if (sessionId === this.#session) this.#add([line]); }

  #add(lines) {
    const known = new Set(this.#lines.map((line) => line.number));
    const all = [...this.#lines, ...lines.filter((line) => !known.has(line.number))];
    this.#lines = all.sort((a, b) => b.number - a.number).slice(0, LINES);
    this.#paint();
  }

  #paint() {
    say(document.querySelector("#tail"), this.#lines.map(({ at, kind, text }, number) => {
      const [shape, color] = shapeOf(kind, text);
      const what = h("span", { class: "sr" }, `${kind.replace(/[._]/g, " ")}: `);
      return h("li", {}, h("time", {}, time(Date.parse(at)).slice(0, 5)), icon(shape, color),
        h("p", { class: number ? null : "now" }, what, prose(text)));
    }));
  }
}

const shapeOf = (kind, text) => {
  if (kind === "approval.requested") return ["medium", "c-mid"];
  if (kind === "approval.decided" && / · expired · /.test(text)) return ["late", "c-mid"];
  if (/deni|block|refus/.test(kind + text)) return ["no", "c-ink"];
  if (/expir|timeout/.test(kind + text)) return ["late", "c-mid"];
  if (/approv|allow|grant/.test(kind + text)) return ["yes", "c-good"];
  return ["dot", "c-low"];
};

