// The only way a text gets onto the page: as text, never as markup, with invisible characters made visible.

// Marks the server wrote (nothing else looks like them), and characters that should never have come this far.
const MARK = /\\u\{[0-9A-F]+\}|⟨[^⟩]*⟩|[^\P{C}\n\t]|[^\P{Z} \n\t]/gu;
const SVG = "http://www.w3.org/2000/svg";

const kept = (children) => children.flat(Infinity).filter((child) => child != null && child !== "" && child !== false);

// Elements of ours: attributes and children are written here, a string child is a text of ours or has passed `marked`.
export const h = (tag, attributes, ...children) => {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === true) node.setAttribute(name, "");
    else if (value !== false && value != null) node.setAttribute(name, value);
  }
  node.append(...kept(children));
  return node;
};

export const icon = (name, color) => {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("aria-hidden", "true");
  if (color) svg.setAttribute("class", color);
  const use = document.createElementNS(SVG, "use");
  use.setAttribute("href", `#i-${name}`);
  svg.append(use);
  return svg;
};

export const point = (svg, name, color) => {
  svg.setAttribute("class", color ?? "");
  svg.firstElementChild.setAttribute("href", `#i-${name}`);
};

// A foreign text, in pieces that can be appended.
export const marked = (text) => {
  const pieces = [];
  let from = 0;
  for (const found of String(text).matchAll(MARK)) {
    if (found.index > from) pieces.push(text.slice(from, found.index));
    pieces.push(chip(found[0]));
    from = found.index + found[0].length;
  }
  if (from < text.length) pieces.push(text.slice(from));
  return pieces;
};

const chip = (mark) => {
  const hex = mark.codePointAt(0).toString(16).toUpperCase();
  const shown = /^(?:\\u\{|⟨)/.test(mark) ? mark : `\\u{${hex}}`;
  const counted = shown.startsWith("⟨");
  const name = counted ? shown.slice(1, -1) : `character U+${shown.slice(3, -1)}`;
  return h("span", { class: "esc", role: "img", "aria-label": name }, counted ? name : shown);
};

// A text of a tool, an agent or a hook, set apart from our own.
export const u = (text, tag = "span") => h(tag, { class: "u" }, marked(text));
export const prose = (text, tag = "span") => h(tag, { class: "w", dir: "auto" }, marked(text));
export const say = (node, ...children) => { node.replaceChildren(...kept(children)); return node; };

export const plural = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;

const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });
export const time = (ms) => CLOCK.format(ms);
export const dated = (ms, now) => (DAY.format(ms) === DAY.format(now) ? time(ms) : `${DAY.format(ms)}, ${time(ms)}`);

// The time left, as it is read at a glance.
export const left = (ms) => {
  const seconds = Math.max(0, Math.ceil(ms / 1000));
  if (seconds >= 172_800) return `${Math.floor(seconds / 86_400)} d`;
  if (seconds >= 3_600) return `${Math.floor(seconds / 3_600)} h`;
  return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
};

export const span = (seconds) => {
  if (seconds < 60) return `${Math.round(seconds)} s`;
  if (seconds < 3_600) return `${Math.round(seconds / 60)} min`;
  return seconds < 172_800 ? `${Math.round(seconds / 3_600)} h` : `${Math.round(seconds / 86_400)} d`;
};
