// The connection: JSON-RPC over one WebSocket to the server this page came from, and to no other; and its time.

const OURS = "_amplifier-hooks/";
const META = "amplifier-hooks";
const DELAYS = [250, 500, 1_000, 2_000, 5_000, 10_000];
const LARGEST = 64 * 1024; // of a message; the server hangs up on more
const TOO_LARGE = -32602;
const UNKNOWN = -32000;
const UNKNOWN_TOKEN = 4401;
const PING = 20_000;
const PATIENCE = 8_000;
const HEALTHY = 5_000;

export const unique = () =>
  Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");

export class Failed extends Error {
  constructor(code, message) { super(message); this.code = code; }
}

export class Link {
  #token; #socket; #waiting = new Map(); #tries = 0; #retry; #ping; #offset = 0; #healthy;

  // `told(method, params)` for notifications of the server, `changed(state)` for connecting, live, lost and refused.
  constructor(token, told, changed) {
    this.#token = token;
    this.told = told;
    this.changed = changed;
    this.state = "connecting";
    this.heard = 0;
    addEventListener("online", () => this.#now());
    addEventListener("offline", () => this.#socket?.close());
    document.addEventListener("visibilitychange", () => { if (!document.hidden) this.probe(); });
  }

  // The server's time, from its last message: now, and at a moment of this clock.
  now() { return this.at(Date.now()); }
  at(ms) { return ms + this.#offset; }

  open() {
    const address = new URL("acp", location.href);
    address.protocol = location.protocol === "https:" ? "wss:" : "ws:";
    const socket = new WebSocket(address);
    this.#socket = socket;
    socket.onopen = () => this.#greet(socket);
    socket.onmessage = (event) => { if (socket === this.#socket) this.#read(event.data); };
    socket.onclose = (event) => { if (socket === this.#socket) this.#lost(event); };
  }

  close() { clearTimeout(this.#retry); clearInterval(this.#ping); this.#socket?.close(); }

  // Ask for something; rejects with `Failed`, whose code is 0 if the connection broke before an answer came.
  ask(method, params = {}) { return this.#send(OURS + method, params); }

  #send(method, params) {
    return new Promise((resolve, reject) => {
      if (this.#socket?.readyState !== WebSocket.OPEN) { reject(new Failed(0, "not connected")); return; }
      const id = unique();
      const text = JSON.stringify({ jsonrpc: "2.0", id, method, params });
      if (new Blob([text]).size > LARGEST) { reject(new Failed(TOO_LARGE, "This is too large to be sent.")); return; }
      this.#waiting.set(id, { resolve, reject });
      this.#socket.send(text);
    });
  }

  async #greet(socket) {
    try {
      const capabilities = { _meta: { [META]: { queue: true } } };
      await this.#send("initialize", { protocolVersion: 1, clientCapabilities: capabilities });
      const authenticate = { methodId: "token", _meta: { [META]: { token: this.#token } } };
      if (this.#token) await this.#send("authenticate", authenticate); // without one, the request itself said who it is
      const attached = await this.ask("attach");
      if (socket !== this.#socket) return;
      clearTimeout(this.#healthy);
      this.#healthy = setTimeout(() => { this.#tries = 0; }, HEALTHY); // a server that hangs up at once is not hurried
      clearInterval(this.#ping);
      this.#ping = setInterval(() => this.probe(), PING);
      this.#become("live", attached);
    } catch (error) {
      if (error.code === UNKNOWN) this.#refuse(error.message);
      else if (error.code) socket.close(); // it may know more the next time
    }
  }

  #read(data) {
    let message;
    try { message = JSON.parse(data); } catch { this.#socket.close(); return; }
    this.heard = Date.now();
    const said = message.result ?? message.params;
    if (said?.serverTime) this.#offset = Date.parse(said.serverTime) - this.heard;
    if (message.method) {
      const ours = message.id == null && message.method.startsWith(OURS);
      if (ours) this.told(message.method.slice(OURS.length), message.params);
      return;
    }
    const asked = this.#waiting.get(message.id);
    this.#waiting.delete(message.id);
    if (message.error) asked?.reject(new Failed(message.error.code, message.error.message));
    else asked?.resolve(message.result);
  }

  // Browsers do not tell of a peer that has vanished: ask, and hang up on silence.
  async probe() {
    const socket = this.#socket;
    if (socket?.readyState !== WebSocket.OPEN) { this.#now(); return; }
    const silence = setTimeout(() => { socket.close(); if (socket === this.#socket) this.#lost({}); }, PATIENCE);
    try { await this.ask("ping"); } catch { /* the close says it */ }
    clearTimeout(silence);
  }

  #lost(event) {
    clearInterval(this.#ping);
    clearTimeout(this.#healthy);
    this.#socket = undefined;
    for (const { reject } of this.#waiting.values()) reject(new Failed(0, "the connection broke"));
    this.#waiting.clear();
    if (this.state === "refused") return;
    if (event.code === UNKNOWN_TOKEN && this.state !== "live") { this.#refuse(event.reason); return; }
    this.#become("lost");
    const delay = DELAYS[Math.min(this.#tries++, DELAYS.length - 1)];
    clearTimeout(this.#retry);
    this.#retry = setTimeout(() => this.open(), delay * (.75 + Math.random() / 2));
  }

  #now() {
    if (this.state !== "lost" || this.#socket) return;
    clearTimeout(this.#retry);
    this.open();
  }

  #refuse(why) { this.#become("refused", why); this.close(); }
  #become(state, detail) { this.state = state; this.changed(state, detail); }
}
