// Assembles the page: the token, the three places, and repeated loading while the page is visible.

import { $, bearer, gated, here, themed } from "/assets/frame.js";
import { Agents } from "/pages/agents.js";
import { Hooks } from "/pages/hooks.js";
import { Runs } from "/pages/runs.js";
import { Service } from "/pages/service.js";

const PLACES = { hooks: "Hooks", runs: "Runs", agents: "Agents" };
const AGAIN = 2_000; // milliseconds between two loads

const token = bearer("#hooks");
let announceTimer;

const announce = (text) => {
  $("#polite").textContent = "";
  clearTimeout(announceTimer);
  announceTimer = setTimeout(() => { $("#polite").textContent = text; }, 50);
};

const connected = (state) => {
  $("#live").hidden = state !== "live";
  $("#notice").hidden = state !== "lost";
  $("#notice span").textContent = "You can read; changes resume when reconnected.";
  if (state === "refused") gate("The server does not know this token. Make one with: amplifier-hooks token create");
};

const gate = (why) => {
  for (const name of Object.keys(PLACES)) $(`#${name}`).hidden = true;
  $("#gate").hidden = false;
  if (why) $("#gate-why").textContent = why;
};

const [place, id] = [() => location.hash.slice(1).split("/")[0], () => location.hash.split("/")[1]];

const begin = () => {
  const service = new Service(token, connected);
  const pages = { hooks: new Hooks(service, announce), runs: new Runs(service), agents: new Agents(service, announce) };
  let looking = false;

  const look = async () => {
    if (looking || document.hidden || !$("#gate").hidden) return;
    looking = true;
    try { await pages[place()]?.load(id()); } finally { looking = false; }
  };

  const route = () => {
    if (!$("#gate").hidden) return;
    if (!PLACES[place()]) { location.replace("#hooks"); return; }
    for (const name of Object.keys(PLACES)) $(`#${name}`).hidden = name !== place();
    here(`#${place()}`);
    document.title = PLACES[place()];
    pages[place()].show(id());
    look();
  };

  addEventListener("hashchange", route);
  document.addEventListener("visibilitychange", look);
  setInterval(look, AGAIN);
  route();
};

themed();
gated();
if (token) begin(); else gate();
