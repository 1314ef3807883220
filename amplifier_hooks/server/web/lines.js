// Two texts beside each other, line by line.

import { h, marked } from "/assets/text.js";

const MOST = 400; // lines that are compared; longer texts are shown without a comparison

// Returns the longest common lines, as pairs of line numbers.
const common = (one, two) => {
  const table = Array.from({ length: one.length + 1 }, () => new Uint16Array(two.length + 1));
  for (let i = one.length - 1; i >= 0; i--) {
    for (let j = two.length - 1; j >= 0; j--) {
      table[i][j] = one[i] === two[j] ? table[i + 1][j + 1] + 1 : Math.max(table[i + 1][j], table[i][j + 1]);
    }
  }
  const pairs = [];
  for (let i = 0, j = 0; i < one.length && j < two.length;) {
    if (one[i] === two[j]) pairs.push([i++, j++]);
    else if (table[i + 1][j] >= table[i][j + 1]) i++;
    else j++;
  }
  return pairs;
};

// Returns rows of [left, right]; a side is null where only the other side has a line.
const rows = (one, two) => {
  const result = [];
  let i = 0;
  let j = 0;
  const same = one.length > MOST || two.length > MOST ? [] : common(one, two);
  for (const [left, right] of [...same, [one.length, two.length]]) {
    while (i < left || j < right) result.push([i < left ? i++ : null, j < right ? j++ : null, false]);
    if (left < one.length) { result.push([left, right, true]); i = left + 1; j = right + 1; }
  }
  return result;
};

const line = (texts, at, sign, kind) =>
  at === null
    ? h("div", { class: "dl blank" }, h("i"), h("b"), h("span", {}, " "))
    : h("div", { class: `dl ${kind}` }, h("i", {}, String(at + 1)), h("b", {}, sign), h("span", {}, marked(texts[at])));

const side = (title, lines) =>
  h("div", {}, h("p", { class: "side" }, title), h("div", { class: "diff u" }, lines));

export const beside = (before, after) => {
  const one = before.split("\n");
  const two = after.split("\n");
  const all = rows(one, two);
  return h("div", { class: "pair" },
    side("As sent", all.map(([left, , same]) => line(one, left, same ? "" : "−", same ? "" : "del"))),
    side("As run", all.map(([, right, same]) => line(two, right, same ? "" : "+", same ? "" : "add"))));
};

export const alone = (text) =>
  h("div", { class: "diff u" }, text.split("\n").map((words, number) =>
    h("div", { class: "dl one" }, h("i", {}, String(number + 1)), h("b"), h("span", {}, marked(words)))));
