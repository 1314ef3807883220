// The HTTP API of the server that served this page.

const TIMEOUT = 15_000;

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

  // Calls `changed(state)` with live, lost or refused.
  constructor(token, changed) {
    this.#token = token;
    this.changed = changed;
    this.state = "connecting";
  }

  get(path) { return this.#ask("GET", path); }
  post(path, body) { return this.#ask("POST", path, body); }
  put(path, body, tag) { return this.#ask("PUT", path, body, tag); }
  delete(path, tag) { return this.#ask("DELETE", path, undefined, tag); }

  // Returns the rows of all pages of a list, up to `most`; each page has its rows in the field `name`.
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

  // Sends a request. Rejects with `Refused`; the status is 0 if no response came.
  async #ask(method, path, body, tag) {
    const headers = { authorization: `Bearer ${this.#token}`, accept: "application/json" };
    if (body !== undefined) headers["content-type"] = "application/json";
    if (tag) headers["if-match"] = tag;
    let response;
    try {
      const signal = AbortSignal.timeout(TIMEOUT);
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
