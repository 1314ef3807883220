// Puts the page together: the token, the connection, the places, the keys.

import { Arming, STILL } from "./arming.js";
import { Card } from "./card.js";
import { $, bearer, decoded, gated, here, themed } from "./frame.js";
import { Link } from "./link.js";
import { Grants, History, Rail } from "./lists.js";
import { Queue } from "./queue.js";
import { dated, h, marked, plural, say, span, time } from "./text.js";

const PLACES = ["inbox", "history", "grants"];
const OFFLINE = 15_000;

const byHost = $("meta[name=sign-in]").content === "host"; // the application around this page signs people in
const token = byHost ? "" : bearer("#inbox");
const me = { name: "", mayDecide: false };
let link, since, lastAnswer;

const announcing = {}; // a timer for each region: no polite word takes the place of an urgent one
const announce = (text, urgent = false) => {
  const region = urgent ? "#urgent" : "#polite";
  $(region).textContent = "";
  clearTimeout(announcing[region]);
  announcing[region] = setTimeout(() => { $(region).textContent = text; }, 50);
};

const arming = new Arming(() => document.querySelectorAll("#card .decide"));
let queue, card, rail, past, grants;

const begin = (token) => {
  link = new Link(token, told, linked);
  queue = new Queue(link, me);
  rail = new Rail(link, me);
  past = new History(link, me);
  grants = new Grants(link, me, announce);
  card = new Card({ link, me, queue, arming, announce, moved: move });
  link.open();
  setInterval(tick, 1_000);
};

// -- notifications of the server --

const told = (method, said) => ({
  added() {
    if (!queue.add(said.row)) return;
    const waiting = queue.waiting.length;
    announce(`New request: ${said.row.tool}, ${said.row.risk} risk. ${waiting} waiting.`);
    notify(said.row);
    counted();
    if (!card.open && place() === "inbox") show(said.row.requestId, false);
    else if (card.open) card.refresh();
  },
  resolved() {
    lastAnswer = said.ending.at ? Date.parse(said.ending.at) : link.now();
    queue.resolve(said.requestId, said.ending);
    if (said.requestId === card.id && !card.ending) card.resolve(said.ending);
    else if (card.open) card.refresh();
    counted();
    if (place() === "history") past.load();
  },
  changed() {
    const item = queue.get(said.requestId);
    if (item?.ending) item.ending.status = said.status;
    if (said.requestId === card.id && card.ending) { card.ending.status = said.status; card.refresh(); }
  },
  stops() { stopped(said.stops); },
  grants_changed() { if (place() === "grants") grants.load(); },
  line() { rail.line(said.sessionId, said.line); },
})[method]?.();

const linked = (state, detail) => {
  if (state === "refused") { gate(detail); return; }
  if (state === "lost") since ??= Date.now();
  if (state === "live") {
    since = undefined;
    Object.assign(me, { name: detail.you.name, mayDecide: detail.you.mayDecide });
    say($("#me"), marked(me.name), me.mayDecide ? " · may decide" : " · may view only");
    rail.tail = Boolean(detail.features?.tail);
    stopped(detail.stops ?? []);
    const gone = queue.reset(detail.queue, detail.recent ?? []);
    for (const id of gone) settleUnknown(id);
    lastAnswer ??= detail.recent?.[0]?.ending.at && Date.parse(detail.recent[0].ending.at);
    counted();
    route();
    requestAnimationFrame(() => setTimeout(() => performance.mark("shown")));
  }
  banner();
  card.linked();
  rail.linked(card.row);
};

// The request was decided while the page was offline, and is not among the recent ones: ask for it by its id.
const settleUnknown = async (id) => {
  try {
    const found = await link.ask("show", { requestId: id });
    if (found.ending) told("resolved", { requestId: id, ending: found.ending });
  } catch (error) {
    if (!error.code) return;
    const ending = { status: "cancelled", allowed: false, reason: "it is not known any more" };
    told("resolved", { requestId: id, ending });
  }
};

// -- the frame --

const banner = () => {
  const lost = since !== undefined;
  const off = lost && (!navigator.onLine || Date.now() - since > OFFLINE);
  const notice = $("#notice");
  $("#live").hidden = link.state !== "live";
  notice.hidden = !lost;
  if (!lost) return;
  notice.className = `notice ${off ? "off" : "wait"}`;
  notice.firstElementChild.firstElementChild.setAttribute("href", off ? "#i-off" : "#i-wait");
  const [word, more] = notice.querySelectorAll("b, span");
  const name = off ? "Offline" : "Reconnecting";
  const old = span((Date.now() - (link.heard || since)) / 1000);
  if (word.textContent !== name) word.textContent = name;
  more.textContent = off ? `since ${time(link.at(since))}. Nothing is sent.` : `for ${old}. You can read; answering resumes when connected.`;
};

// A stop denies acts, answers included, until it ends: the newest is told whole, and the others by their number.
const stopped = (stops) => {
  $("#stop").hidden = !stops.length;
  const stop = stops.at(-1);
  say($("#stop span"), stop && [" by ", marked(stop.by), ": ", marked(stop.why), " · ",
    stop.session ? ["session ", marked(stop.session)] : "every session",
    `, since ${dated(Date.parse(stop.since), link.now())}`, stops.length > 1 && ` · ${plural(stops.length, "stop")} in all`]);
  $("#stop").title = $("#stop").textContent;
};

const counted = () => {
  const waiting = queue.waiting.length;
  document.title = waiting ? `(${waiting}) Approvals` : "Approvals";
  const count = $("#count");
  count.hidden = !waiting;
  say(count, String(waiting), h("span", { class: "sr" }, " waiting"));
  $("link[rel=icon]").href = `data:image/svg+xml,${encodeURIComponent(badge(waiting))}`;
  const ago = span(Math.max(0, (link.now() - lastAnswer) / 1000));
  say($("#last"), lastAnswer && ` The last answer was given ${ago} ago.`);
};

const badge = (waiting) => `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32">
  <path d="M20 4v15a7 7 0 0 1-14 0v-4l-3 4m3-4 4 4" fill="none" stroke="#17606d" stroke-width="4" stroke-linecap="round"/>
  <g visibility="${waiting ? "visible" : "hidden"}"><circle cx="22" cy="10" r="10" fill="#17606d"/>
  <text x="22" y="14.5" font-family="sans-serif" font-size="13" font-weight="700" text-anchor="middle" fill="#fff">${
  waiting > 9 ? "9+" : waiting}</text></g></svg>`;

const tick = () => {
  if (!link || document.hidden) return;
  if (since !== undefined) banner();
  queue.tick(link.now());
  card.tick();
  rail.tick();
};

const gate = (why) => {
  for (const name of PLACES) $(`#${name}`).hidden = true;
  $("#gate").hidden = false;
  $("#notice").hidden = $("#live").hidden = $("#stop").hidden = true;
  if (!why) return;
  $("#gate-form").hidden = byHost;
  if (byHost) $("#gate h1").textContent = "You are signed out";
  $("#gate-why").textContent = byHost ? "Sign in to the application around this page, and load the page again." :
    "The server does not know this token. Open the address that it printed last, or paste the token here.";
};

// -- places --

const place = () => (PLACES.includes(location.hash.slice(1)) ? location.hash.slice(1) : "inbox");

const route = () => {
  if (!$("#gate").hidden) return;
  const now = place();
  for (const name of PLACES) $(`#${name}`).hidden = name !== now;
  here(`#${now}`);
  if (now === "history") past.load();
  if (now === "grants") grants.load();
  if (now !== "inbox") return;
  const id = decoded(/^#r\/(.+)$/.exec(location.hash)?.[1] ?? "");
  if (id && queue.get(id) && id !== card.id) show(id, false);
  else if (!card.open) show(queue.next(0), false);
  else arming.restart();
};

const show = async (id, focus = true) => {
  const shown = card.show(id);
  $("#nothing").hidden = Boolean(card.row);
  rail.show(card.row);
  if (id && place() === "inbox") history.replaceState(null, "", `#r/${encodeURIComponent(id)}`);
  counted();
  // At once: a card that comes late takes no focus from a button that an approver has reached meanwhile.
  if (focus) card.$(".act")?.focus({ preventScroll: true });
  await shown;
  if (id === card.id) rail.show(card.row, card.card);
};

let came = -STILL; // the time at which the last card came by itself
const move = (way) => {
  const early = way === "next" && performance.now() - came < STILL; // meant for the card before
  came = way === "on" ? performance.now() : -STILL;
  if (early) return;
  if (way === "all") { document.body.classList.toggle("list"); return; }
  const step = way === "prev" ? -1 : 1;
  const id = queue.next(step, card.id) ?? (card.ending ? queue.next(-step, card.id) : undefined);
  if (id) show(id);
  else if (card.ending) show(undefined);
};

$("#waiting").addEventListener("click", (event) => {
  const row = event.target.closest("a");
  if (!row || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  document.body.classList.remove("list");
  show(decoded(row.hash.slice(3)));
});

// -- notifications: asked for by a click, and no more in them than the tool's name --

const tellable = () => {
  const possible = "Notification" in globalThis && Notification.permission !== "denied";
  const on = possible && Notification.permission === "granted";
  $("#tell").hidden = !possible || on;
  $("#told").hidden = !on;
  $("#told").textContent = "You are told when something waits.";
};
$("#tell").addEventListener("click", async () => { await Notification.requestPermission(); tellable(); });
const notify = (row) => {
  if (!document.hidden || !("Notification" in globalThis) || Notification.permission !== "granted") return;
  const shown = new Notification("Approvals", { body: `${row.tool} waits for an answer`, tag: "approvals" });
  shown.onclick = () => { window.focus(); shown.close(); };
};

// -- keys: only with a card shown and no field in use --

$("#help").addEventListener("click", () => $("#keys").showModal());

const GO = { i: "inbox", h: "history", g: "grants" };
const verb = (name) => card.$(`[data-do=${name}]`);
const KEYS = {
  j: () => move("next"),
  k: () => move("prev"),
  v: () => card.turnOn(),
  Escape: () => card.back(),
};
const DECIDING = {
  d: () => card.arm(verb("deny")),
  a: () => card.arm(verb("allow")),
  m: () => card.toggle("deny"),
  e: () => card.toggle("edit"),
  b: () => card.toggle("group"),
  w: () => { card.toggle("always"); if (card.panel === "always") card.arm(verb("always")); },
};
const DECISIONS = ["deny", "allow", "always", "edited", "other", "every"];
let going = 0;

addEventListener("keydown", (event) => {
  const { key, target } = event;
  if (event.ctrlKey || event.metaKey || event.altKey || !link || $("#keys").open) return;
  if (target.matches("input, textarea")) return;
  if (performance.now() < going && GO[key]) location.hash = GO[key];
  going = key === "g" && !(performance.now() < going) ? performance.now() + 1_000 : 0;
  if (key === "?") $("#keys").showModal();
  if (place() !== "inbox" || !card.open || going) return;
  if (key === "Enter" || key === " ") pressed(event);
  else if (KEYS[key]) KEYS[key]();
  else if (DECIDING[key]) { event.preventDefault(); if (arming.key(event)) DECIDING[key](); }
});

// Enter confirms what is armed. On a button it arms that one; a lone key never decides.
const pressed = (event) => {
  const button = event.target.closest("button");
  const decides = DECISIONS.includes(button?.dataset.do);
  if (!card.armed && !decides) return;
  event.preventDefault();
  if (card.armed ? event.key !== "Enter" : event.repeat) return;
  if (!arming.key(event)) return;
  if (card.armed) card.confirm();
  else card.arm(button);
};

addEventListener("hashchange", () => { if (link) route(); });
document.addEventListener("visibilitychange", tick);

tellable();
themed();
gated();
if (token || byHost) begin(token); else gate();
