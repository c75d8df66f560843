// Fetches the page again and puts its new content in the place of the old one; without scripts the
// browser loads the page as a whole. Nothing is sent and nothing is kept.
"use strict";
(() => {
  const own = document.currentScript;
  const period = 1000 * Number(own.dataset.refresh);

  function put(fresh, selector) {
    const from = fresh.querySelector(selector);
    const to = document.querySelector(selector);
    if (from && to) to.replaceChildren(...from.childNodes);
  }

  // Tables may be scrolled sideways: stay where the reader is.
  function scrolled() {
    return new Map([...document.querySelectorAll(".scroll")].map(
      (box) => [box.getAttribute("aria-label"), box.scrollLeft]));
  }

  // What has the focus, as a selector that finds its successor.
  function focused() {
    const at = document.activeElement;
    if (!at || !at.closest("main, nav, #fresh")) return null;
    if (at.matches(".scroll")) return `.scroll[aria-label="${CSS.escape(at.getAttribute("aria-label"))}"]`;
    if (at.matches("a")) return `${at.closest("nav") ? "nav" : at.closest("main") ? "main" : "#fresh"} a[href="${CSS.escape(at.getAttribute("href"))}"]`;
    return null;
  }

  async function refresh() {
    if (document.hidden || (getSelection() && !getSelection().isCollapsed)) return;
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (!fresh.querySelector("main")) throw new Error(String(answer.status));
      const places = scrolled();
      const focus = focused();
      put(fresh, "main");
      put(fresh, "nav");
      put(fresh, "#fresh");
      for (const box of document.querySelectorAll(".scroll")) {
        box.scrollLeft = places.get(box.getAttribute("aria-label")) || 0;
      }
      if (focus) document.querySelector(focus)?.focus({ preventScroll: true });
      document.documentElement.dataset.refreshed = String(Date.now());
    } catch {
      const line = document.querySelector("#fresh");
      if (line) line.textContent = "the page does not answer: what you see is old";
    }
  }

  setInterval(refresh, period);
  document.addEventListener("visibilitychange", refresh);
})();
