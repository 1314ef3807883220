// History, grants, and the rail beside the card.

import { RISK, verdict } from "./queue.js";
import { dated, h, icon, marked, plural, prose, say, span, time, u } from "./text.js";

const PAGES = 100;
const LINES = 60;
const SHOW = {
  all: () => true,
  allowed: ({ ending }) => ending.allowed,
  denied: ({ ending }) => !ending.allowed && Boolean(ending.by),
  ended: ({ ending }) => !ending.by,
};
const NOTES = { failed: "It ran and failed.", unknown: "Whether it ran to its end is not known.", approved: "It has not run yet." };

export class History {
  #entries = []; #shown = "all";

  constructor(link, me) {
    Object.assign(this, { link, me });
    this.root = document.querySelector("#history");
    this.root.addEventListener("click", (event) => {
      const chip = event.target.closest("[data-show]");
      if (!chip) return;
      this.#shown = chip.dataset.show;
      for (const each of this.root.querySelectorAll("[data-show]")) each.setAttribute("aria-pressed", String(each === chip));
      this.#rows();
    });
  }

  async load() {
    let answer;
    try { answer = await this.link.ask("history", { limit: PAGES }); } catch { return; }
    this.#entries = answer.entries;
    this.#rows();
  }

  #rows() {
    const now = this.link.now();
    const took = this.#entries.filter(({ ending }) => ending.by && ending.took != null).map(({ ending }) => ending.took).sort((a, b) => a - b);
    const count = (show) => this.#entries.filter(SHOW[show]).length;
    say(this.root.querySelector("#history-sum"), this.#entries.length
      ? `The last ${plural(this.#entries.length, "request")}: ${count("allowed")} allowed, ${count("denied")} denied, ${count("ended")} expired or withdrawn.${took.length ? ` Half were answered within ${span(took[took.length >> 1])}.` : ""}`
      : "Nothing has been decided yet.");
    const found = this.#entries.filter(SHOW[this.#shown]);
    say(this.root.querySelector("#history-rows"), found.length
      ? [h("div", { class: "hrow head", "aria-hidden": "true" }, ["Time", "Answer", "Action", "Who"].map((word) => h("span", {}, word)), h("span", { class: "took" }, "Took")), found.map((entry) => this.#row(entry, now))]
      : h("p", { class: "void" }, "There is none."));
  }

  #row({ row, ending }, now) {
    const is = verdict(ending, this.me.name);
    const at = ending.at ? Date.parse(ending.at) : Date.parse(row.created);
    const why = ending.message ? ["“", prose(ending.message), "”"]
      : ending.by ? [prose(row.agent), " · ", prose(row.session), NOTES[ending.status] ? ` · ${NOTES[ending.status]}` : ""]
        : ending.status === "expired" ? `Nobody answered; ${ending.allowed ? "allowed" : "denied"} by default` : prose(ending.reason || "Taken back");
    return h("div", { class: "hrow", "data-id": row.requestId },
      h("time", {}, dated(at, now)),
      h("span", { class: `verdict ${is.color}` }, icon(is.icon), is.word),
      h("div", { class: "what" }, h("b", {}, marked(row.tool)), " ", u(row.what), h("p", {}, h("span", { class: "sr" }, `${RISK[row.risk]}. `), why)),
      h("div", { class: "who" }, marked(is.who), h("p", {}, ending.channel ? marked(ending.channel) : ending.status === "expired" ? "default" : "")),
      h("span", { class: "took wide" }, ending.took == null ? "" : span(ending.took)));
  }
}

export class Grants {
  constructor(link, me, announce) {
    Object.assign(this, { link, me, announce });
    this.root = document.querySelector("#grant-rows");
    this.root.addEventListener("click", (event) => { const button = event.target.closest("button"); if (button && event.isTrusted) this.#revoke(button); });
  }

  async load() {
    let answer;
    try { answer = await this.link.ask("grants"); } catch { return; }
    say(this.root, answer.grants.length
      ? answer.grants.map((grant) => this.#row(grant))
      : h("p", { class: "void" }, "There is none. “Always” on a card makes one."));
  }

  #row(grant) {
    const now = this.link.now();
    const ends = grant.expires ? `ends ${dated(Date.parse(grant.expires), now)}` : ["ends with session ", prose(grant.session ?? "")];
    return h("div", { class: "grant" }, h("div", {},
      h("p", {}, icon(grant.allows ? "yes" : "no", grant.allows ? "c-good" : "c-ink"), h("b", {}, grant.allows ? "Allowed" : "Denied"), " ", prose(grant.covers)),
      h("small", {}, grant.by === this.me.name ? "You" : marked(grant.by), `, ${dated(Date.parse(grant.since), now)} · `, ends, " · answers hook ", u(grant.hook), grant.version ? [" version ", u(grant.version)] : "")),
    h("button", { class: "btn line", type: "button", "data-grant": grant.grantId, disabled: !this.me.mayDecide }, "Revoke", h("span", { class: "sr" }, " ", marked(grant.covers))));
  }

  async #revoke(button) {
    button.disabled = true;
    try {
      const { revoked } = await this.link.ask("revoke", { grantId: button.dataset.grant });
      this.announce(revoked ? "Revoked." : "It was not in force any more.");
      await this.load();
    } catch { button.disabled = false; this.announce("Not revoked: no connection."); }
  }
}

export class Rail {
  #lines = []; #session;

  constructor(link, me) {
    Object.assign(this, { link, me, tail: false });
    this.root = document.querySelector("#rail");
    this.facts = document.querySelector("#facts");
  }

  show(row, card) {
    this.root.hidden = !row;
    if (!row) return;
    const fact = (name, ...text) => [h("dt", {}, name), h("dd", {}, ...text)];
    const asked = Date.parse(row.created);
    this.asked = h("span");
    this.askedAt = asked;
    say(this.facts,
      fact("Session", prose(row.session)), fact("Agent", u(row.agent)), card?.cwd && fact("Directory", u(card.cwd)),
      row.tenant && fact("Tenant", u(row.tenant)), fact("Tool", u(row.tool)), card?.event && fact("Event", u(card.event)),
      fact("Asked", time(asked), this.asked), fact("Ends", dated(Date.parse(row.expires), this.link.now()), row.resumable ? ", run can resume later" : ""),
      fact("Request", u(row.requestId)), fact("Digest", h("span", { class: "u", title: row.digest }, (row.digest.slice(0, 16).match(/.{1,4}/g) ?? []).join(" "))));
    this.tick();
    this.#follow(row);
  }

  tick() { if (this.asked && this.link.state === "live") this.asked.textContent = `, ${span(Math.max(0, (this.link.now() - this.askedAt) / 1000))} ago`; }

  async #follow(row) {
    document.querySelector("#tail-part").hidden = !this.tail;
    if (!this.tail || this.link.state !== "live") return;
    if (this.#session === row.sessionId) return;
    this.#session = row.sessionId;
    this.#lines = [];
    this.#paint();
    let answer;
    try { answer = await this.link.ask("tail", { sessionId: row.sessionId, on: true }); } catch { this.#session = undefined; return; }
    if (this.#session === row.sessionId) this.#add(answer.lines);
  }

  // A new connection follows nothing yet.
  linked(row) {
    const live = this.link.state === "live";
    document.querySelector("#tail-state").textContent = live ? "live" : `stopped at ${time(this.link.heard)}`;
    if (live) this.#session = undefined;
    if (live && row) this.#follow(row);
  }

  line(sessionId, line) { if (sessionId === this.#session) this.#add([line]); }

  #add(lines) {
    const known = new Set(this.#lines.map((line) => line.number));
    this.#lines = [...this.#lines, ...lines.filter((line) => !known.has(line.number))].sort((a, b) => b.number - a.number).slice(0, LINES);
    this.#paint();
  }

  #paint() {
    say(document.querySelector("#tail"), this.#lines.map(({ at, kind, text }, number) => {
      const [shape, color] = shapeOf(kind, text);
      return h("li", {}, h("time", {}, time(Date.parse(at)).slice(0, 5)), icon(shape, color), h("p", { class: number ? null : "now" }, h("span", { class: "sr" }, `${kind.replace(/[._]/g, " ")}: `), prose(text)));
    }));
  }
}

const shapeOf = (kind, text) => {
  if (kind === "approval.requested") return ["medium", "c-mid"];
  if (/deni|block|refus/.test(kind + text)) return ["no", "c-ink"];
  if (/expir|timeout/.test(kind + text)) return ["late", "c-mid"];
  if (/approv|allow|grant/.test(kind + text)) return ["yes", "c-good"];
  return ["dot", "c-low"];
};

