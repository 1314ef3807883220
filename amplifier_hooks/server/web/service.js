// The HTTP API of the server this page came from, and of no other.

const PATIENCE = 15_000;

export class Refused extends Error {
  constructor(status, said) {
    super(said.detail ?? "The server did not answer.");
    this.status = status;
    this.code = said.code ?? "";
    this.mistakes = said.mistakes ?? [];
  }
}

export class Service {
  #token;

  // `changed(state)` for live, lost and refused.
  constructor(token, changed) {
    this.#token = token;
    this.changed = changed;
    this.state = "connecting";
  }

  get(path) { return this.#ask("GET", path); }
  post(path, body) { return this.#ask("POST", path, body); }
  put(path, body, tag) { return this.#ask("PUT", path, body, tag); }

  // Every page of a list, whose rows stand under this name; up to so many of them.
  async all(path, name, most = 1_000) {
    const rows = [];
    let cursor = null;
    do {
      const joint = path.includes("?") ? "&" : "?";
      const said = await this.get(cursor ? `${path}${joint}cursor=${encodeURIComponent(cursor)}` : path);
      rows.push(...said[name]);
      cursor = said.next;
    } while (cursor && rows.length < most);
    return rows;
  }

  // Rejects with `Refused`; its status is 0 if nothing came back.
  async #ask(method, path, body, tag) {
    const headers = { authorization: `Bearer ${this.#token}`, accept: "application/json" };
    if (body !== undefined) headers["content-type"] = "application/json";
    if (tag) headers["if-match"] = tag;
    let response;
    try {
      const signal = AbortSignal.timeout(PATIENCE);
      const options = { method, headers, signal, cache: "no-store", credentials: "omit", redirect: "error" };
      response = await fetch(path, { ...options, body: body === undefined ? undefined : JSON.stringify(body) });
    } catch {
      this.#become("lost");
      throw new Refused(0, {});
    }
    if (response.status === 401) {
      this.#become("refused");
      throw new Refused(401, {});
    }
    this.#become("live");
    const said = response.status === 204 ? null : await response.json().catch(() => ({}));
    if (!response.ok) throw new Refused(response.status, said);
    return said;
  }

  #become(state) {
    if (this.state === state) return;
    this.state = state;
    this.changed(state);
  }
}
