// The end of a request, in words: the queue, the card and the history share them.

import { span, time } from "./text.js";

export const RISK = { low: "Low risk", medium: "Medium risk", high: "High risk" };
const COLOR = { low: "c-low", medium: "c-mid", high: "c-high" };
export const riskColor = (row) => COLOR[row.risk];

const NO_APPROVER = "No approver";
const YOU = "You";
const GONE = { cancelled: "Withdrawn", superseded: "Replaced" };
const DID = {
  Once: ["Allowed once", "allowed this once"],
  Always: ["Allowed always", "allowed this always"],
  Edited: ["Allowed, edited,", "allowed this, edited"],
  Denied: ["Denied", "denied this"],
  "Denied always": ["Denied always", "denied this always"],
};
const RAN = {
  approved: "The call is about to run.",
  claimed: "The call is running.",
  done: "The call has run.",
  failed: "The call ran and failed.",
  unknown: "It is unknown if the call ran to its end.",
};
const PLACES = { web: "on the web", terminal: "in the terminal", api: "over the API" };

// Returns the shape, the colour, the word, and the approver.
export const verdict = (ending, me) => {
  const { status, allowed, kind, edited } = ending;
  if (status === "expired") return { icon: "late", color: "c-mid", word: "Expired", who: NO_APPROVER };
  if (GONE[status]) return { icon: "gone", color: "c-low", word: GONE[status], who: NO_APPROVER };
  const who = ending.by === me ? YOU : ending.by ?? NO_APPROVER;
  if (!allowed) return { icon: "no", color: "c-ink", word: kind === "reject_always" ? "Denied always" : "Denied", who };
  const word = edited ? "Edited" : kind === "allow_always" ? "Always" : "Once";
  return { icon: "yes", color: "c-good", word, who };
};

// For a row: "Allowed once by Jun".
export const inShort = (ending, me) => {
  const { word, who } = verdict(ending, me);
  if (word === "Expired") return `No answer; ${ending.allowed ? "allowed" : "denied"}`;
  return who === NO_APPROVER ? word : `${DID[word][0]} by ${who === YOU ? "you" : who}`;
};

// For the card: the end, and its meaning. `answered` is true if this page has sent an answer too.
export const inFull = (ending, me, now, answered) => {
  const { status, at, reason, channel, message, allowed } = ending;
  const { word, who } = verdict(ending, me);
  const when = at ? Date.parse(at) : now;
  if (word === "Expired") {
    return allowed
      ? [`Expired at ${time(when)}. No answer came, so it was allowed.`, "It was allowed by default, not by a person."]
      : [`Expired at ${time(when)}. No answer came, so it was denied.`,
        "Nothing ran. The agent was told that time ran out, not that a person said no."];
  }
  const why = reason ? `: ${reason}` : "";
  if (who === NO_APPROVER) return [`${word} at ${time(when)}${why}.`, "Nothing ran, and the question is closed."];
  const ago = Math.max(0, (now - when) / 1000);
  const where = channel ? `, ${PLACES[channel] ?? `through ${channel}`}` : "";
  const said = who === YOU ? "" : `, ${ago < 2 ? "just now" : `${span(ago)} ago`}${where}`;
  const late = answered && who !== YOU ? "Your answer came later and changed nothing. " : "";
  const ran = allowed ? RAN[status] ?? "" : message ? `Nothing ran. The agent reads: “${message}”` : "Nothing ran.";
  return [`${who} ${DID[word][1]}${said}.`, late + ran];
};
