// The start of every page: it takes the token out of the address, and sets light or dark.

export const $ = (selector) => document.querySelector(selector);
export const tried = (work) => { try { return work(); } catch { return undefined; } }; // storage may be forbidden
export const decoded = (text) => tried(() => decodeURIComponent(text)) ?? text;

// The token leaves the address at once, and any query with it; it stays with this tab.
export const bearer = (home) => {
  const given = /^#t=(.+)$/.exec(location.hash)?.[1];
  if (given || location.search) history.replaceState(null, "", `${location.pathname}${given ? home : location.hash}`);
  if (given) tried(() => { sessionStorage.token = decoded(given); });
  return given ? decoded(given) : tried(() => sessionStorage.token);
};

// Asks for a token if there is none, or the server does not know it.
export const gated = () => {
  $("#gate-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const given = $("#token").value.trim(); // a token, a link, or the file of the token
    if (!given) return;
    const token = /"token": "([^"]+)"/.exec(given)?.[1] ?? given.replace(/^.*#t=/, "");
    location.replace(`${location.pathname}#t=${encodeURIComponent(token)}`);
    location.reload();
  });
};

// The tab of the place that is shown.
export const here = (hash) => {
  for (const tab of document.querySelectorAll(".tabs a")) {
    if (tab.hash === hash) tab.setAttribute("aria-current", "page");
    else tab.removeAttribute("aria-current");
  }
};

export const themed = () => {
  const theme = (name) => { document.documentElement.dataset.theme = name; };
  const chosen = tried(() => localStorage.theme);
  if (["light", "dark"].includes(chosen)) theme(chosen);
  $("#theme").addEventListener("click", () => {
    const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
    const now = document.documentElement.dataset.theme ?? system;
    theme(now === "dark" ? "light" : "dark");
    tried(() => { localStorage.theme = document.documentElement.dataset.theme; });
  });
};
