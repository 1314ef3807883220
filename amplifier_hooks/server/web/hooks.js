// The hooks: by band, in the order they run; beside them the selected hook.

import { $ } from "/assets/frame.js";
import { dated, h, icon, marked, plural, say, u } from "/assets/text.js";

const BANDS = [
  [0, "Security"], [50, "Governance"], [100, "Input"], [200, "Execution"], [300, "Output"], [400, "Application"],
  [500, "Observability"], [700, "Notification"], [900, "Debug"], [1_001],
];
const CLOSED = 100;
const STOPS = "a failure stops the action";
const REPORTED = "a failure is only reported";
const NOTHING = "report-only: it stops nothing";
const SHOWN = {
  all: ["All", () => true],
  failing: ["Failing", (row) => row.enabled && row.wrong],
  off: ["Off", (row) => !row.enabled],
};
const ANSWERS = {
  deny: ["no", "c-ink", "Denied", "Would deny"],
  ask_user: ["medium", "c-mid", "Asked", "Would ask"],
  modify: ["yes", "c-good", "Changed it", "Would change it"],
  inject_context: ["yes", "c-good", "Told the model something", "Would tell the model something"],
  continue: ["yes", "c-good", "Let pass", "Would let pass"],
};
const FAILED = ["high", "c-high", "Failed", "Would fail"];
const LATE = ["high", "c-high", "Timed out", "Would run out of time"];
const SAMPLE = { tool_name: "Write", tool_input: { file_path: "config/production.yaml", content: "" } };
const LAST = 20;

const ms = (value) => {
  if (value == null) return "–";
  if (value >= 1_000) return `${(value / 1_000).toFixed(1)} s`;
  return `${value >= 1 ? Math.round(value) : value.toFixed(1)} ms`;
};

// Returns the words for the answer of a report-only hook, in the place of those for one in force.
const withheld = ([shape, color, word]) => {
  const would = `Would have ${word[0].toLowerCase()}${word.slice(1)}`;
  return [shape, color, would, would];
};

// Returns the shape, the colour, and the words for the real and the dry-run outcome of a hook's answer.
const became = (answer) => {
  if (answer.would) return withheld(ANSWERS[answer.would] ?? ANSWERS.continue);
  if (answer.status === "timeout") return LATE;
  return answer.success ? ANSWERS[answer.action] ?? ANSWERS.continue : FAILED;
};

// Handles a missing scope as an empty list, and throws every other problem again.
const unless = (scope) => (problem) => {
  if (problem.status === 403 && problem.message.includes(scope)) return [];
  throw problem;
};

const because = (answer) => answer.error ?? answer.said;

const unfit = (row) => (row.matcher ? `This hook only runs for ${row.matcher}. Change tool_name.`
  : "This hook does not run for such an event.");

export class Hooks {
  #service; #announce; #rows = []; #shown = "all"; #open; #drawn = ""; #sample = JSON.stringify(SAMPLE, null, 2);
  #tried; #trying = false; #turn = 0;

  constructor(service, announce) {
    this.#service = service;
    this.#announce = announce;
    $("#hooks-shown").addEventListener("click", (event) => {
      const chosen = event.target.closest("button")?.dataset.show;
      if (chosen) { this.#shown = chosen; this.#draw(); }
    });
    $("#bands").addEventListener("click", (event) => this.#pressed(event));
  }

  show(id) {
    if (id !== this.#open) this.#tried = undefined;
    this.#open = id;
    if (this.#rows.length) this.#draw();
  }

  // Rows that were asked for before a change, or before a later load, are out of date when they come.
  async load(id) {
    const turn = ++this.#turn;
    try {
      const [hooks, stats] = await Promise.all([
        this.#service.all("/v1/hooks?limit=200", "hooks"),
        this.#service.get("/v1/hooks/stats").then((said) => said.statistics, unless("hooks:read")),
      ]);
      const open = hooks.find((hook) => hook.hook_id === id);
      const log = open
        ? await this.#service.get(`/v1/hooks/logs?hook_name=${encodeURIComponent(open.name)}&limit=${LAST}`)
          .then((said) => said.logs, unless("hooks:read"))
        : [];
      if (turn !== this.#turn) return;
      this.#log = log;
      this.#rows = hooks.map((hook) => ({ ...hook, ...this.#health(hook, stats) }))
        .sort((one, two) => one.priority - two.priority || Boolean(one.tenant_id) - Boolean(two.tenant_id));
      this.#draw();
    } catch (problem) {
      const said = problem.status === 404 ? "This server stores no hooks." : problem.message;
      if (problem.status) say($("#bands"), h("p", { class: "none" }, marked(said)));
    }
  }

  #log = [];

  #health(hook, stats) {
    const mine = stats.filter((row) => row.hook_name === hook.name);
    const sum = (name) => mine.reduce((total, row) => total + row[name], 0);
    const times = mine.map((row) => row.p95_ms).filter((time) => time != null);
    return { runs: sum("runs"), wrong: sum("failures"), p95: times.length ? Math.max(...times) : null };
  }

  // Redraws only if the data changed, so that nothing moves under the pointer.
  #draw() {
    const open = this.#rows.find((row) => row.hook_id === this.#open);
    const now = JSON.stringify([this.#rows, this.#shown, this.#open, this.#log, this.#tried, this.#trying]);
    if (now === this.#drawn) return;
    this.#drawn = now;
    const focus = document.activeElement?.dataset?.focus;
    this.#chips();
    this.#bands();
    this.#panel(open);
    if (focus) document.querySelector(`[data-focus="${CSS.escape(focus)}"]`)?.focus({ preventScroll: true });
  }

  #chips() {
    say($("#hooks-shown"), Object.entries(SHOWN).map(([name, [word, fits]]) =>
      h("button", { class: "chip", type: "button", "data-show": name, "data-focus": `show-${name}`,
        "aria-pressed": String(name === this.#shown) }, `${word} ${this.#rows.filter(fits).length}`)));
  }

  #bands() {
    const rows = this.#rows.filter(SHOWN[this.#shown][1]);
    const parts = BANDS.slice(0, -1).flatMap(([from, name], number) => {
      const to = BANDS[number + 1][0] - 1;
      const mine = rows.filter((row) => row.priority >= from && row.priority <= to);
      if (!mine.length) return [];
      const means = from < CLOSED ? STOPS : REPORTED;
      return [h("h2", { class: "band" }, name, h("small", {}, `${from}–${Math.min(to, 1_000)} · ${means}`)),
        h("ul", { class: "sheet" }, mine.map((row) => this.#row(row)))];
    });
    const nothing = this.#rows.length ? "No hook matches." : "There are no hooks yet.";
    say($("#bands"), parts.length ? parts : h("p", { class: "none" }, nothing));
  }

  #row(row) {
    const id = row.hook_id;
    const odd = row.report_only || this.#closed(row) !== (row.priority < CLOSED);
    return h("li", { class: `hk${row.enabled ? "" : " off"}${id === this.#open ? " here" : ""}` },
      h("button", { class: "switch", type: "button", role: "switch", "aria-checked": String(row.enabled),
        "aria-label": row.name, "data-switch": id, "data-focus": `switch-${id}` }),
      h("div", {},
        h("button", { class: "name u", type: "button", "data-open": id, "data-focus": `open-${id}`,
          "aria-current": id === this.#open ? "true" : null }, marked(row.name)),
        row.tenant_id && h("span", { class: "tag" }, "of ", u(row.tenant_id)),
        h("p", {}, `${row.priority} · `, u(row.event_type), " · ",
          row.matcher ? u(row.matcher) : "everything", odd && ` · ${this.#effect(row)}`)),
      h("span", { class: "health" }, this.#state(row)),
      h("span", { class: "p95" }, ms(row.p95)));
  }

  #closed(row) { return row.fail_mode ? row.fail_mode === "closed" : row.priority < CLOSED; }

  #effect(row) { return row.report_only ? NOTHING : this.#closed(row) ? STOPS : REPORTED; }

  #state(row) {
    if (!row.enabled) return [icon("low"), `Off since ${dated(Date.parse(row.updated_at), Date.now())}`];
    if (row.wrong) return [icon("medium", "c-mid"), `Failed ${row.wrong} of ${row.runs.toLocaleString("en")}`];
    if (!row.runs) return [icon("low", "c-low"), "Not asked yet"];
    return [icon("yes", "c-good"), `Healthy · ${plural(row.runs, "answer")}`];
  }

  async #pressed(event) {
    const { switch: id, open } = event.target.closest("button")?.dataset ?? {};
    if (open) location.hash = open === this.#open ? "#hooks" : `#hooks/${open}`;
    if (!id) return;
    const found = () => this.#rows.find((one) => one.hook_id === id);
    let row = found();
    try {
      const after = await this.#service.put(`/v1/hooks/${id}/toggle`, { enabled: !row.enabled }, `"${row.version}"`);
      this.#turn++;
      row = Object.assign(found() ?? row, after);
      this.#announce(`${row.name} is ${row.enabled ? "on" : "off"}.`);
    } catch (problem) {
      this.#announce(`${row.name} was not switched: ${problem.message}`);
      this.#tried = { hook: id, wrong: problem.message };
    }
    this.#draw();
  }

  // -- the selected hook --

  #panel(row) {
    const panel = $("#hook");
    const typed = panel.querySelector("textarea");
    if (typed) this.#sample = typed.value;
    panel.hidden = !row;
    if (!row) return;
    panel.setAttribute("aria-label", row.name);
    const [shape, ...state] = this.#state(row);
    say(panel,
      h("p", { class: "level" }, h("span", { class: `risk ${shape.getAttribute("class") ?? ""}` }, shape, state)),
      h("h1", { class: "u" }, marked(row.name)),
      row.description && h("p", { class: "sub" }, marked(row.description)),
      this.#facts(row), this.#dryRun(row), this.#answers(row));
  }

  #facts(row) {
    const pair = (name, ...value) => [h("dt", {}, name), h("dd", {}, value)];
    return h("dl", { class: "facts-list" },
      pair("Runs at", u(row.event_type), `, priority ${row.priority}`),
      pair("For", row.matcher ? u(row.matcher) : "everything"),
      pair("Kind", row.kind, " ", row.kind !== row.handler_ref && u(row.handler_ref)),
      pair("Version", String(row.version)),
      pair("Time limit", row.timeout_ms == null ? "default" : ms(row.timeout_ms)),
      pair("Failure", this.#effect(row)),
      pair("Tenant", row.tenant_id ? u(row.tenant_id) : "all, as a hook of the system"),
      pair("Changed", dated(Date.parse(row.updated_at), Date.now())),
      row.tags.length > 0 && pair("Tags", row.tags.map((tag, number) => [number > 0 && ", ", u(tag)])));
  }

  #dryRun(row) {
    const field = h("textarea", { class: "field u", rows: "8", spellcheck: "false", "aria-label": "Event to try",
      "data-focus": "sample" });
    field.value = this.#sample;
    const button = h("button", { class: "btn say", type: "button", "data-focus": "try",
      "aria-disabled": this.#trying ? "true" : null }, "Try it");
    button.addEventListener("click", () => this.#try(row, field.value));
    const tried = this.#tried?.hook === row.hook_id ? this.#tried : undefined;
    return h("section", {}, h("h2", {}, "Dry run ", h("small", {}, "its answer is only shown")), field,
      h("div", { class: "row" }, h("p", { class: "answer", id: "tried" }, tried?.result && this.#said(tried.result)), button),
      tried?.wrong && h("p", { class: "wrong", role: "alert" }, marked(tried.wrong)));
  }

  #said(answer) {
    const [shape, color, , would] = became(answer);
    const took = answer.duration_ms == null ? "" : `, in ${ms(answer.duration_ms)}`;
    return [icon(shape, color), h("span", {}, h("b", {}, would), took,
      because(answer) && [h("br"), u(because(answer))])];
  }

  async #try(row, text) {
    if (this.#trying) return;
    const hook = row.hook_id;
    let sample;
    try { sample = JSON.parse(text); } catch (error) {
      this.#tried = { hook, wrong: `This is not JSON: ${error.message}` };
      this.#draw();
      return;
    }
    this.#trying = true;
    this.#draw();
    try {
      const said = await this.#service.post(`/v1/hooks/${hook}/test`, { sample_context: sample });
      this.#tried = said.result ? { hook, result: said.result } : { hook, wrong: unfit(row) };
      this.#announce(said.result ? became(said.result)[3] : this.#tried.wrong);
    } catch (problem) {
      this.#tried = { hook, wrong: problem.message };
    }
    this.#trying = false;
    this.#draw();
  }

  #answers(row) {
    const mine = this.#log.flatMap((log) =>
      log.hook_results.filter((answer) => answer.hook_name === row.name).map((answer) => [log, answer]));
    return h("section", {},
      h("h2", {}, "Last answers ", h("small", {}, `${row.runs.toLocaleString("en")} in all`)),
      mine.length ? h("ol", { class: "log" }, mine.map(([log, answer]) => this.#entry(row, log, answer)))
        : h("p", { class: "sub" }, "No answers are kept."));
  }

  #entry(row, log, answer) {
    const [shape, color, word] = became(answer);
    const stopped = !answer.success && !row.report_only && this.#closed(row) ? ", so the action was stopped" : "";
    return h("li", {}, h("time", {}, dated(Date.parse(log.timestamp), Date.now())), icon(shape, color),
      h("span", {}, word + stopped, because(answer) && [h("br"), u(because(answer))]), h("span", { class: "dur" }, ms(answer.duration_ms)));
  }
}
