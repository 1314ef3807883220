// Lines of a change.

import { h, marked } from "./text.js";

const SIGNS = { add: "+", del: "−" };
const CHUNK = 200; // lines that are laid out together, and only when they come near

export const diff = (into, lines) => {
  for (let at = 0; at < lines.length; at += CHUNK) {
    const chunk = lines.length > CHUNK ? "chunk" : null;
    into.append(h("div", { class: chunk }, lines.slice(at, at + CHUNK).map(line)));
  }
};

const line = ({ kind, old, new: now, text, pieces }) =>
  h("div", { class: `dl ${kind === "part" ? "skip" : kind}` },
    h("i", {}, String(old ?? "")), h("i", {}, String(now ?? "")), h("b", {}, SIGNS[kind] ?? ""),
    h("span", {}, pieces ? pieces.map(piece) : marked(text)));

const piece = (text, number) => (number % 2 && text ? h("mark", {}, marked(text)) : marked(text));
