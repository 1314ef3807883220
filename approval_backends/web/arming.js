// The keys and clicks that count as an answer of a person, and not as meant for something else.

export const STILL = 500;

// After `restart` nothing counts for half a second, and any key or click in that time starts it anew.
export class Arming {
  #until = 0; #press; #end;

  constructor(shown) {
    this.shown = shown;
    // Getting the window back by a click or a key is not an answer.
    addEventListener("focus", () => this.restart());
    addEventListener("pointerdown", (event) => {
      this.#press = { button: event.target.closest?.("button"), ready: this.ready && event.isTrusted, at: this.#until };
    }, true);
  }

  get ready() { return performance.now() >= this.#until && document.hasFocus(); }

  restart() {
    this.#until = performance.now() + STILL;
    for (const part of this.shown()) {
      part.classList.remove("arming");
      void part.offsetWidth; // the hairline begins again
      part.classList.add("arming");
    }
    clearTimeout(this.#end);
    this.#end = setTimeout(() => { for (const part of this.shown()) part.classList.remove("arming"); }, STILL);
  }

  // Returns true if this key counts.
  key(event) {
    if (event.repeat || !event.isTrusted) return false;
    if (this.ready) return true;
    this.restart();
    return false;
  }

  // Returns the weight of this click: "press" for one whose press and release were meant for this button as it is now,
  // "touch" for one made by a key or by an assistive program, which has to be confirmed, and "" for any other.
  click(event, button) {
    const press = this.#press;
    this.#press = undefined;
    if (!event.isTrusted) return "";
    if (!this.ready) { this.restart(); return ""; }
    if (event.detail === 0) return "touch";
    return press?.button === button && press.ready && press.at === this.#until ? "press" : "";
  }
}
