// The agents, each with the hooks of its blueprint; beside them the form that overrides the selected hook.

import { $ } from "/assets/frame.js";
import { dated, h, icon, marked, plural, say, u } from "/assets/text.js";

const POINTS = { on_run_start: "Start hook", on_run_finish: "Finish hook" };
const TYPES = { agent: "Agent", http: "Web service", python: "Python function" };
const FAILURES = {
  on_run_start: { block: "Block the run", continue: "Let the run go on" },
  on_run_finish: { block: "Report an error", continue: "Report a warning", ignore: "Report nothing" },
};
const STATES = {
  file: ["low", "c-low", "As in the file"],
  overridden: ["yes", "c-good", "Overridden"],
  outdated: ["high", "c-high", "The file has changed"],
};

const target = (entry) => entry.agent_name ?? entry.url ?? entry.handler_ref;
const wanted = (hook) => hook.override ?? hook.file; // the fields that the form starts with
const facts = (hook, entry) =>
  [`${TYPES[entry.type]} `, u(target(entry)), ` · ${FAILURES[hook.hook_type][entry.on_error].toLowerCase()} if it fails`,
    ` · ${plural(entry.timeout_seconds, "second")}`];

export class Agents {
  #service; #announce; #agents = []; #open; #drawn = ""; #saving = false; #wrong = []; #turn = 0;
  #draft; #typed = false; // the fields of the form with the tag of the hook they began with; true once a user has typed

  constructor(service, announce) {
    this.#service = service;
    this.#announce = announce;
    $("#agent-list").addEventListener("click", (event) => {
      const chosen = event.target.closest("button")?.dataset.open;
      if (chosen) location.hash = chosen === this.#open ? "#agents" : `#agents/${chosen}`;
    });
  }

  show(id) {
    if (id !== this.#open) this.#forget();
    this.#open = id;
    if (!this.#agents.length) return;
    this.#draw();
    if (id) $("#agent-hook").scrollIntoView({ block: "nearest" });
  }

  // An answer that comes after a later load has begun is out of date.
  async load() {
    const turn = ++this.#turn;
    try {
      const { agents } = await this.#service.get("/agents");
      if (turn !== this.#turn) return;
      this.#agents = agents;
      this.#draw();
    } catch (problem) {
      const said = problem.status === 404 ? "No agents are kept at this address." : problem.message;
      if (problem.status) say($("#agent-list"), h("p", { class: "none" }, marked(said)));
    }
  }

  #forget() { [this.#draft, this.#typed, this.#wrong] = [undefined, false, []]; }

  #selected() {
    const [name, point] = (this.#open ?? "").split(":");
    const agent = this.#agents.find((one) => one.agent_name === name);
    return [agent, agent?.hooks.find((hook) => hook.hook_type === point)];
  }

  // Redraws only if something changed, so that nothing moves under the pointer; what was typed stays.
  #draw() {
    const form = $("#agent-hook form");
    if (form && this.#draft) for (const [name, value] of new FormData(form)) this.#draft[name] = value;
    const now = JSON.stringify([this.#agents, this.#open, this.#draft?.type, this.#wrong, this.#saving]);
    if (now === this.#drawn) return;
    this.#drawn = now;
    const focus = document.activeElement?.dataset?.focus;
    say($("#agent-list"), this.#agents.length ? this.#agents.map((agent) => this.#rows(agent))
      : h("p", { class: "none" }, "There are no agents."));
    this.#panel(...this.#selected());
    if (focus) document.querySelector(`[data-focus="${CSS.escape(focus)}"]`)?.focus({ preventScroll: true });
  }

  #rows(agent) {
    return [h("h2", { class: "band" }, u(agent.agent_name), h("small", {}, agent.hooks.length ? agent.agent_type : "no hooks")),
      agent.hooks.length > 0 && h("ul", { class: "sheet" }, agent.hooks.map((hook) => this.#row(agent, hook)))];
  }

  #row(agent, hook) {
    const id = `${agent.agent_name}:${hook.hook_type}`;
    const [shape, color, word] = STATES[hook.state];
    return h("li", { class: `hk bp${id === this.#open ? " here" : ""}` },
      h("div", {}, h("button", { class: "name", type: "button", "data-open": id, "data-focus": `open-${id}`,
        "aria-current": id === this.#open ? "true" : null }, POINTS[hook.hook_type]),
      h("p", {}, facts(hook, hook.state === "overridden" ? hook.override : hook.file))),
      h("span", { class: "health" }, icon(shape, color), word));
  }

  // -- the selected hook --

  #panel(agent, hook) {
    const panel = $("#agent-hook");
    panel.hidden = !hook;
    if (!hook) return;
    panel.setAttribute("aria-label", `${POINTS[hook.hook_type]} of ${agent.agent_name}`);
    if (!this.#draft || (!this.#typed && this.#draft.tag !== hook.tag)) this.#draft = { ...wanted(hook), tag: hook.tag };
    this.#draft.tag ??= hook.tag;
    const [shape, color, word] = STATES[hook.state];
    say(panel,
      h("p", { class: "level" }, h("span", { class: `risk ${color}` }, icon(shape), word)),
      h("h1", {}, `${POINTS[hook.hook_type]} of `, u(agent.agent_name)),
      agent.description && h("p", { class: "sub" }, marked(agent.description)),
      this.#history(hook), this.#form(agent, hook));
  }

  #history(hook) {
    const pair = (name, ...value) => [h("dt", {}, name), h("dd", {}, value)];
    return [
      hook.state === "outdated" && h("div", { class: "block-reason" }, icon("high"),
        h("b", {}, "This change was made for another content of the file."),
        h("p", {}, hook.hook_type === "on_run_start" && [hook.file, hook.override].some((one) => one.on_error === "block")
          ? "No run of this agent starts until you save the change again or go back to the file."
          : "The hook of the file runs until you save the change again.")),
      h("dl", { class: "facts-list" }, pair("In the file", facts(hook, hook.file)),
        hook.override && pair("Changed", "by ", u(hook.changed_by), `, ${dated(Date.parse(hook.changed_at), Date.now())}`))];
  }

  #form(agent, hook) {
    const draft = this.#draft;
    const line = (name, words, node, hint) => {
      for (const [key, value] of Object.entries({ id: `of-${name}`, name, "data-focus": name })) node.setAttribute(key, value);
      return [h("label", { for: `of-${name}` }, words, hint && h("small", {}, ` ${hint}`)), node];
    };
    const choice = (options, value) => h("select", { class: "field" }, Object.entries(options).map(([one, words]) =>
      h("option", { value: one, selected: one === value }, words)));
    const input = (value, more) => {
      const node = h("input", { class: "field u", autocomplete: "off", spellcheck: "false", ...more });
      node.value = value ?? "";
      return node;
    };
    const types = Object.entries(TYPES).filter(([type]) => type !== "python" || hook.file.type === "python");
    const names = [...new Set([draft.agent_name ?? "", ...this.#agents.map((one) => one.agent_name)])];
    const type = choice(Object.fromEntries(types), draft.type);
    type.addEventListener("change", () => this.#draw());
    const form = h("form", { novalidate: true },
      line("type", "Type", type),
      draft.type === "agent" && line("agent_name", "Agent", choice(Object.fromEntries(names.map((name) => [name, name])), draft.agent_name ?? "")),
      draft.type === "http" && line("url", "URL", input(draft.url, { inputmode: "url" }),
        hook.file.url && "the headers of the file go to its URL only"),
      draft.type === "python" && h("p", { class: "sub" }, "Function ", u(hook.file.handler_ref), ", as in the file."),
      line("on_error", "If it fails", choice(FAILURES[hook.hook_type], draft.on_error)),
      line("timeout_seconds", "Time limit in seconds", input(draft.timeout_seconds, { inputmode: "decimal" })),
      this.#wrong.length > 0 && h("ul", { class: "wrong", role: "alert" }, this.#wrong.map((one) => h("li", {}, marked(one)))),
      h("div", { class: "row" },
        hook.override ? h("button", { class: "btn line", type: "button", "data-focus": "back",
          "aria-disabled": this.#saving ? "true" : null }, "Back to the file") : h("span"),
        h("button", { class: "btn say", type: "submit", "data-focus": "save",
          "aria-disabled": this.#saving ? "true" : null }, "Save")));
    form.addEventListener("input", () => { this.#typed = true; });
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#change(agent, hook, () => this.#fields());
    });
    form.querySelector('[data-focus="back"]')?.addEventListener("click", () => this.#change(agent, hook, () => null));
    return form;
  }

  // Returns the fields of the form as the API takes them.
  #fields() {
    const { type, agent_name, url, on_error, timeout_seconds } = Object.fromEntries(new FormData($("#agent-hook form")));
    const seconds = timeout_seconds.trim() === "" ? NaN : Number(timeout_seconds);
    if (Number.isNaN(seconds)) throw new Error("timeout_seconds: write a number of seconds");
    return { type, on_error, timeout_seconds: seconds, ...(type === "agent" && { agent_name }), ...(type === "http" && { url }) };
  }

  async #change(agent, hook, fields) {
    if (this.#saving) return;
    const path = `/agents/${agent.agent_name}/hooks/${hook.hook_type}`;
    try {
      const body = fields();
      [this.#saving, this.#wrong] = [true, []];
      this.#draw();
      const after = body ? await this.#service.put(path, body, `"${this.#draft.tag}"`)
        : await this.#service.delete(path, `"${this.#draft.tag}"`);
      this.#forget();
      this.#announce(`${POINTS[hook.hook_type]} of ${agent.agent_name}: ${STATES[after.state][2]}.`);
    } catch (problem) {
      const mistakes = (problem.mistakes ?? []).map((one) => `${one.at.replace(/^body\.?/, "")}: ${one.problem}`.replace(/^: /, ""));
      this.#wrong = mistakes.length ? mistakes : [problem.message];
      if (problem.status === 412) this.#draft.tag = undefined; // the next press of Save is about what the page shows by then
    }
    this.#saving = false;
    await this.load();
  }
}
