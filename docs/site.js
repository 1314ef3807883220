// Names and focus for parts that the theme makes in the page, so that a keyboard reaches them and a screen reader tells
// them apart.
const mend = () => {
  document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex])").forEach((table) => {
    table.tabIndex = 0;
  });
  document.querySelectorAll("nav.md-code__nav:not([aria-label])").forEach((part) => {
    part.setAttribute("aria-label", `Block of code ${document.querySelectorAll("nav.md-code__nav[aria-label]").length + 1}`);
  });
  document.querySelectorAll("nav.md-nav[aria-labelledby^=__nav_]").forEach((part) => {
    const title = document.getElementById(part.getAttribute("aria-labelledby"));
    part.setAttribute("aria-label", `Pages below ${title.textContent.trim()}`);
    part.removeAttribute("aria-labelledby");
  });
};
new MutationObserver(mend).observe(document.body, { childList: true, subtree: true });
mend();
