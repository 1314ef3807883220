// The runs: newest first; beside them the selected run, from the queue to its end.

import { $ } from "/assets/frame.js";
import { dated, h, icon, marked, plural, say, u } from "/assets/text.js";
import { alone, beside } from "/pages/lines.js";

const SVG = "http://www.w3.org/2000/svg";
const SHOWN = {
  all: ["All", ""],
  hooks: ["Has hooks", "&has_hooks=true"],
  blocked: ["Blocked", "&hook_blocked=true"],
  failed: ["Failed", "&status=failed"],
};
const STATES = {
  queued: ["late", "c-low", "Queued"],
  starting: ["late", "c-low", "In its start hooks"],
  running: ["run", "c-low", "Running"],
  completed: ["yes", "c-good", "Completed"],
  failed: ["high", "c-high", "Failed"],
  stopped: ["no", "c-ink", "Stopped"],
};
const STEPS = {
  queued: ["dot", "c-low", "Queued"],
  starting: ["dot", "c-low", "Start hooks began"],
  ready: ["dot", "c-low", "Ready for a runner"],
  running: ["run", "c-low", "Ran"],
  result: ["dot", "c-low", "Result posted"],
  child: ["run", "c-low", "Started another run"],
  stopping: ["late", "c-mid", "Asked to stop"],
  lost: ["high", "c-mid", "Its runner was lost"],
  completed: ["yes", "c-good", "Completed"],
  failed: ["high", "c-high", "Failed"],
  stopped: ["no", "c-ink", "Stopped"],
};
const HOOKS = {
  running: ["late", "c-low", "runs"],
  complete: ["yes", "c-good", "done"],
  failed: ["high", "c-high", "failed"],
  blocked: ["no", "c-high", "blocked"],
  lost: ["high", "c-mid", "was lost with its coordinator"],
};
const POINTS = { on_run_start: "Start hook", on_run_finish: "Finish hook", "run:start": "Hook at the start" };
const ENDED = ["completed", "failed", "stopped"];
const MOST = 200;

const took = (ms) => {
  if (ms == null) return "–";
  if (ms >= 60_000) return `${Math.floor(ms / 60_000)} min ${Math.round((ms % 60_000) / 1_000)} s`;
  if (ms >= 1_000) return `${(ms / 1_000).toFixed(1)} s`;
  return `${ms >= 10 ? Math.round(ms) : ms.toFixed(1)} ms`;
};
const short = (id) => (id.length > 14 ? `${id.slice(0, 12)}…` : id);

const CLOCK = new Intl.DateTimeFormat("en-GB",
  { hour: "2-digit", minute: "2-digit", second: "2-digit", fractionalSecondDigits: 3 });
const pretty = (value) => JSON.stringify(value, null, 2);

const state = (run) => (run.blocked ? ["no", "c-high", "Blocked before it ran"]
  : run.status === "completed" && run.failed_hooks ? ["medium", "c-mid", "Completed"] : STATES[run.status]);

const note = (run) => [
  state(run)[2],
  run.parent_run_id && ["started by ", u(short(run.parent_run_id))],
  run.status === "running" && run.runner && ["with ", u(run.runner)],
  run.parameters_changed > 0 && `${plural(run.parameters_changed, "parameter")} changed by a hook`,
  run.failed_hooks > 0 && `${plural(run.failed_hooks, "hook")} failed`,
  run.stop_requested && !ENDED.includes(run.status) && "asked to stop",
].filter(Boolean).map((part, number) => [number > 0 && " · ", part]);

export class Runs {
  #service; #rows = []; #run; #open; #shown = "all"; #drawn = ""; #wrong; #turn = 0; #loaded = false;

  constructor(service) {
    this.#service = service;
    $("#runs-shown").addEventListener("click", (event) => {
      const chosen = event.target.closest("button")?.dataset.show;
      if (chosen) { this.#shown = chosen; this.load(this.#open); }
    });
  }

  show(id) {
    this.#open = id;
    $("#runs").classList.toggle("open", Boolean(id));
    if (this.#run?.run_id !== id) this.#run = undefined;
    this.#draw();
  }

  // An answer that comes after a later load has begun is out of date.
  async load(id) {
    const turn = ++this.#turn;
    let wrong;
    try {
      const filters = SHOWN[this.#shown][1];
      const [page, run] = await Promise.all([
        this.#service.get(`/runs?limit=${MOST}${filters}`),
        id && !this.#settled(id) ? this.#service.get(`/runs/${encodeURIComponent(id)}`) : this.#run,
      ]);
      if (turn !== this.#turn) return;
      [this.#rows, this.#loaded] = [page.runs, true];
      if (id === this.#open) this.#run = run;
    } catch (problem) {
      if (turn !== this.#turn) return;
      if (problem.status === 404 && id) location.replace("#runs");
      else if (problem.status) wrong = problem.status === 404 ? "No runs are kept at this address." : problem.message;
    }
    this.#wrong = wrong;
    this.#draw();
  }

  // Returns true for a run that has ended together with its hooks, and so does not change any more.
  #settled(id) {
    return this.#run?.run_id === id && ENDED.includes(this.#run.status)
      && this.#run.hooks.every((hook) => hook.outcome !== "running") && Date.now() - Date.parse(this.#run.ended_at) > 60_000;
  }

  #draw() {
    const now = JSON.stringify([this.#rows, this.#loaded, this.#shown, this.#open, this.#run, this.#wrong]);
    if (now === this.#drawn) return;
    this.#drawn = now;
    const focus = document.activeElement?.dataset?.focus;
    say($("#runs-shown"), Object.entries(SHOWN).map(([name, [word]]) =>
      h("button", { class: "chip", type: "button", "data-show": name, "data-focus": `show-${name}`,
        "aria-pressed": String(name === this.#shown) }, word)));
    say($("#run-list"), this.#rows.length ? this.#family().map((run) => this.#row(run))
      : h("li", { class: "none" }, this.#wrong ? marked(this.#wrong) : this.#loaded && "No runs."));
    this.#detail(this.#run);
    if (focus) document.querySelector(`[data-focus="${CSS.escape(focus)}"]`)?.focus({ preventScroll: true });
  }

  // Puts children below the run that started them, if that run is on the list.
  #family() {
    const known = new Set(this.#rows.map((run) => run.run_id));
    const below = (id) => this.#rows.filter((run) => run.parent_run_id === id).flatMap((run) => [run, ...below(run.run_id)]);
    return this.#rows.filter((run) => !known.has(run.parent_run_id)).flatMap((run) => [run, ...below(run.run_id)]);
  }

  #row(run) {
    const [shape, color] = state(run);
    const left = ENDED.includes(run.status) ? took(run.duration_ms) : run.status;
    const inner = run.parent_run_id && this.#rows.some((one) => one.run_id === run.parent_run_id);
    return h("li", {}, h("a", { class: `qi ri${inner ? " child" : ""}`, href: `#runs/${run.run_id}`,
      "data-focus": run.run_id, "aria-current": run.run_id === this.#open ? "true" : null },
    icon(shape, color), h("strong", {}, marked(run.agent_name)), h("span", { class: "left" }, left),
    h("span", { class: "note" }, note(run)),
    h("span", { class: "from" }, `${short(run.run_id)} · ${dated(Date.parse(run.created_at), Date.now())}`)));
  }

  #detail(run) {
    if (!run) {
      say($("#run"), h("p", { class: "none" }, this.#rows.length ? "Select a run to see its timeline and result." : ""));
      return;
    }
    const [shape, color, word] = state(run);
    say($("#run"),
      h("div", { class: "detail-head" },
        h("div", {}, h("p", { class: "level" }, h("span", { class: `risk ${color}` }, icon(shape), word)),
          h("h1", {}, marked(run.agent_name))),
        h("p", { class: "clock" }, h("b", {}, ENDED.includes(run.status) ? took(run.duration_ms) : run.status),
          h("span", {}, run.blocked ? "no runner was used" : ENDED.includes(run.status) ? "from queue to end" : ""))),
      this.#facts(run), this.#reason(run), this.#timeline(run), this.#parameters(run), this.#result(run),
      this.#children(run));
  }

  #facts(run) {
    const fact = (name, value, untrusted = true) =>
      value && h("div", {}, h("dt", {}, name), h("dd", {}, untrusted ? u(value) : value));
    return h("dl", { class: "inline-facts" },
      fact("Run", run.run_id), fact("Session", run.session_id), fact("Status", run.status, false),
      fact("Runner", run.runner), fact("Type", run.agent_type, false), fact("Tenant", run.tenant_id),
      fact("Queued", dated(Date.parse(run.created_at), Date.now()), false),
      run.parent && h("div", {}, h("dt", {}, "Started by"),
        h("dd", {}, h("a", { class: "u", href: `#runs/${run.parent.run_id}` }, run.parent.run_id))));
  }

  #reason(run) {
    const why = run.block_reason ?? run.error;
    if (!why) return null;
    const hook = run.hooks.find((one) => one.outcome === (run.blocked ? "blocked" : "failed"));
    const said = hook && ["Said by ", (POINTS[hook.hook_type] ?? hook.hook_type).toLowerCase(), " ", u(hook.target_name), ". "];
    return h("div", { class: "block-reason" }, icon(run.blocked ? "no" : "high"), h("b", { class: "u" }, marked(why)),
      h("p", {}, said, run.blocked && "The agent was never given to a runner."));
  }

  #timeline(run) {
    const whole = Math.max(1, ...run.timeline.map((step) => step.offset_ms + (step.duration_ms ?? 0)));
    return [h("h2", {}, "Timeline ", h("small", {}, "filled: a hook · hollow: the run")),
      h("ol", { class: "tl" }, run.timeline.map((step) => this.#step(step, whole)))];
  }

  #step(step, whole) {
    const { hook } = step;
    const [shape, color, word] = hook ? HOOKS[hook.outcome] : STEPS[step.name] ?? ["dot", "c-low", step.name];
    const name = hook ? `${POINTS[hook.hook_type] ?? hook.hook_type} ${word}` : word;
    return h("li", {}, h("time", {}, CLOCK.format(Date.parse(step.at))), icon(shape, color),
      h("div", { class: "name" }, h("b", {}, name), this.#about(step)),
      bar(step, whole), h("span", { class: "dur" }, step.duration_ms == null ? "" : took(step.duration_ms)));
  }

  #about({ name: step, hook, facts }) {
    if (!hook) {
      if (step === "queued" || ENDED.includes(step)) return null; // the head of the run shows it
      if (step === "child") {
        const child = facts.child_run_id;
        return h("p", {}, "agent ", u(facts.agent_name), " · ", h("a", { class: "u go", href: `#runs/${child}` }, short(child)));
      }
      const said = Object.entries(facts ?? {}).filter(([, value]) => ["string", "number"].includes(typeof value) && value !== "");
      return said.length > 0 && h("p", {}, said.map(([name, value], number) =>
        [number > 0 && " · ", `${name.replaceAll("_", " ")} `, u(String(value))]));
    }
    const more = hook.error ?? hook.block_reason;
    return h("p", {}, `${hook.target_type} `, u(hook.target_name),
      hook.action && hook.outcome === "complete" && ` · ${hook.action}`,
      hook.on_error_behavior && ` · on error: ${hook.on_error_behavior}`,
      more && [h("br"), u(more)]);
  }

  #parameters(run) {
    const changes = run.parameter_changes;
    const count = (kind) => changes.filter((one) => one.kind === kind).length;
    const words = ["changed", "added", "removed"].filter(count).map((kind) => `${count(kind)} ${kind}`).join(" · ");
    const before = pretty(run.parameters);
    return [
      h("h2", {}, "Parameters ", h("small", {}, changes.length ? "checked against the schema before and after the hook"
        : "as sent; nothing was changed")),
      h("figure", { class: "well", "aria-label": changes.length ? "Original and transformed parameters" : "Parameters as sent" },
        changes.length > 0 && h("figcaption", { class: "well-head" }, h("span", { class: "facts" }, words)),
        changes.length ? beside(before, pretty(run.parameters_as_run)) : alone(before))];
  }

  #result(run) {
    const text = run.result_text ?? (run.result_data == null ? null : pretty(run.result_data));
    if (text == null) return null;
    return [h("h2", {}, "Result"), h("figure", { class: "well", "aria-label": "Result" },
      run.result_text == null ? alone(text) : h("div", { class: "result u" }, marked(text)))];
  }

  #children(run) {
    if (!run.children.length) return null;
    return [h("h2", {}, "Started from here ", h("small", {}, plural(run.children.length, "run"))),
      h("ol", { class: "sheet" }, run.children.map((child) => this.#row({ ...child, parent_run_id: null })))];
  }
}

const bar = (step, whole) => {
  const svg = document.createElementNS(SVG, "svg");
  for (const [name, value] of [["class", "span"], ["viewBox", "0 0 100 8"], ["preserveAspectRatio", "none"],
    ["aria-hidden", "true"]]) svg.setAttribute(name, value);
  const part = (kind, x, y, width, height) => {
    const rect = document.createElementNS(SVG, "rect");
    for (const [name, value] of Object.entries({ class: kind, x, y, width, height })) rect.setAttribute(name, value);
    svg.append(rect);
  };
  part("track", 0, 3.5, 100, 1);
  const from = (100 * step.offset_ms) / whole;
  const long = Math.max(1, (100 * (step.duration_ms ?? 0)) / whole);
  part(step.hook ? "hook" : "run", Math.min(from, 100 - long), 1, long, 6);
  return svg;
};
