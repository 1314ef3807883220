// The queue: a row keeps its place while a person points at the queue, whatever happens to its request.

import { h, icon, left, marked, point, say, time, u } from "./text.js";
import { RISK, inShort, riskColor, verdict } from "./words.js";

const FIRST = 40; // rows that are made at once; the others follow while the page is idle
const SLICE = 80;
const RECENT = 12;
const TOGETHER = 20; // requests that are answered together, at most

export class Queue {
  #rows = new Map(); #parked = []; #first; #slices; #template = document.querySelector("#t-item");

  constructor(link, me) {
    this.link = link;
    this.me = me;
    this.list = document.querySelector("#waiting");
    this.recentList = document.querySelector("#recent");
    this.region = document.querySelector("#queue");
    this.region.addEventListener("pointerleave", () => this.settle());
    this.region.addEventListener("focusout", () => setTimeout(() => this.settle()));
  }

  // Every request that is known here, in the order of the queue.
  get ids() { return [...this.#rows.keys()]; }
  get waiting() { return this.ids.filter((id) => !this.#rows.get(id).ending); }
  get(id) { return this.#rows.get(id); }

  // The waiting requests that are answered together with this one, which comes first.
  alike(id) {
    const group = this.#rows.get(id)?.row.group;
    if (!group) return [];
    const others = this.waiting.filter((each) => each !== id && this.#rows.get(each).row.group === group);
    return [id, ...others].slice(0, TOGETHER).map((each) => this.#rows.get(each).row);
  }

  // Takes all waiting requests, after a connection was made. Known rows keep their places.
  reset(rows, recent) {
    const waits = new Map(rows.map((row) => [row.requestId, row]));
    const ended = new Map(recent.map((entry) => [entry.row.requestId, entry.ending]));
    const gone = [];
    for (const [id, item] of this.#rows) {
      if (waits.has(id)) item.row = waits.get(id);
      else if (ended.has(id)) this.resolve(id, ended.get(id));
      else if (!item.ending) gone.push(id);
    }
    this.#recent(recent);
    for (const row of rows) if (!this.#rows.has(row.requestId)) this.#rows.set(row.requestId, { row });
    never(this.#slices);
    this.#draw(FIRST);
    this.tick(this.link.now());
    return gone;
  }

  // Rows are known at once; their elements follow in slices, so that a long queue does not hold up the first look.
  #draw(count) {
    const missing = [...this.#rows.values()].filter((item) => !item.node);
    this.list.append(...missing.slice(0, count).map((item) => this.#make(item)));
    this.#slices = missing.length > count ? later(() => this.#draw(SLICE)) : undefined;
    this.#empty();
  }

  add(row) {
    if (this.#rows.has(row.requestId)) return false;
    this.#rows.set(row.requestId, { row });
    if (!this.#slices) this.#draw(SLICE);
    this.#changed(row);
    return true;
  }

  // Marks a request as decided. Its row says so in its place, and moves on once no person points at the queue.
  resolve(id, ending) {
    const item = this.#rows.get(id);
    if (!item || item.ending) return false;
    item.ending = ending;
    this.#paint(item);
    this.#changed(item.row);
    this.#parked.push(id);
    this.settle();
    return true;
  }

  settle() {
    if (!this.#parked.length || this.region.matches(":hover") || this.region.contains(document.activeElement)) return;
    for (const id of this.#parked.splice(0)) {
      if (id === this.shown) { this.#parked.push(id); continue; }
      const { row, ending, node } = this.#rows.get(id);
      this.#rows.delete(id);
      node?.remove();
      this.recentList.prepend(this.#decided({ row, ending }));
    }
    while (this.recentList.childElementCount > RECENT) this.recentList.lastElementChild.remove();
    document.querySelector("#recent-head").hidden = !this.recentList.childElementCount;
    this.#empty();
  }

  show(id) {
    this.#rows.get(this.shown)?.node?.firstElementChild.removeAttribute("aria-current");
    this.shown = id;
    const link = this.#rows.get(id)?.node?.firstElementChild;
    link?.setAttribute("aria-current", "true");
    link?.scrollIntoView({ block: "nearest" });
    this.settle();
  }

  next(step, from = this.shown) {
    const open = this.ids.filter((id) => id === from || !this.#rows.get(id).ending);
    const at = open.indexOf(from);
    return at < 0 ? open[0] : open[at + step];
  }

  tick(now) {
    const open = [...this.#rows.values()].filter((item) => !item.ending);
    for (const item of open) item.ends ??= Date.parse(item.row.expires);
    this.#first = open.length > 1 ? open.reduce((one, other) => (other.ends < one.ends ? other : one)) : undefined;
    for (const item of open) if (item.node) this.#left(item, now);
  }

  #left(item, now) {
    const first = item === this.#first;
    const text = `${left(Date.parse(item.row.expires) - now)}${first ? " · ends first" : ""}`;
    if (text === item.text) return;
    const node = item.node.querySelector(".left");
    node.textContent = item.text = text;
    node.classList.toggle("c-mid", first);
  }

  // Another request came or went: the rows beside it may say something else.
  #changed({ group }) {
    const members = group ? [...this.#rows.values()].filter((item) => !item.ending && item.row.group === group) : [];
    for (const item of members) this.#paint(item, members.length);
    this.tick(this.link.now());
  }

  #make(item) {
    item.node = this.#template.content.firstElementChild.cloneNode(true);
    const link = item.node.firstElementChild;
    link.href = `#r/${encodeURIComponent(item.row.requestId)}`;
    say(item.node.querySelector("strong"), marked(item.row.tool));
    say(item.node.querySelector(".u"), marked(about(item.row)));
    this.#paint(item);
    if (item.row.requestId === this.shown) link.setAttribute("aria-current", "true");
    return item.node;
  }

  #paint(item, alike = this.alike(item.row.requestId).length) {
    if (!item.node) return;
    const { row, ending } = item;
    const link = item.node.firstElementChild;
    link.classList.toggle("gone", Boolean(ending));
    if (ending) {
      const is = verdict(ending, this.me.name);
      point(link.firstElementChild, is.icon, is.color);
      const ended = is.who === "No approver" ? "ended" : "decided";
      link.querySelector(".left").textContent = ending.status === "expired" ? "expired" : ended;
      say(link.querySelector(".from"), marked(inShort(ending, this.me.name)));
      return;
    }
    point(link.firstElementChild, row.risk, riskColor(row));
    say(link.querySelector(".from"), h("span", { class: "sr" }, `${RISK[row.risk]}. `), marked(row.agent),
      row.resumable && " · run can resume later", alike > 1 && ` · ${alike} alike`);
    this.#left(item, this.link.now());
  }

  #recent(entries) {
    const moved = entries.filter(({ row }) => !this.#rows.has(row.requestId)).slice(0, RECENT);
    say(this.recentList, moved.map((entry) => this.#decided(entry)));
    document.querySelector("#recent-head").hidden = !this.recentList.childElementCount;
  }

  #decided({ row, ending }) {
    const is = verdict(ending, this.me.name);
    return h("li", {}, h("a", { class: "qi gone", href: "#history" },
      icon(is.icon, is.color), h("strong", {}, marked(row.tool)),
      h("span", { class: "left" }, ending.at ? time(Date.parse(ending.at)).slice(0, 5) : ""),
      u(about(row)),
      h("span", { class: "from" }, marked(inShort(ending, this.me.name)), ending.message && ", with a message")));
  }

  #empty() { document.querySelector("#no-queue").hidden = this.#rows.size > 0; }
}

// The object of a row; for an unknown tool, its arguments.
const about = (row) => row.summary ?? row.what;

const later = (work) => (globalThis.requestIdleCallback ?? ((run) => setTimeout(run, 16)))(work, { timeout: 500 });
const never = (handle) => (globalThis.cancelIdleCallback ?? clearTimeout)(handle);
