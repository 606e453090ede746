// Loaded first, as a script of its own: reloads the page if another part of it cannot be loaded.

const PAUSE = 5_000; // ms

addEventListener(
  "error",
  ({ target }) => {
    if (target instanceof HTMLLinkElement && target.rel === "stylesheet") setTimeout(() => target.replaceWith(target.cloneNode()), PAUSE);
    if (!(target instanceof HTMLScriptElement)) return;
    const tell = () => {
      const banner = document.getElementById("banner");
      banner.textContent = "Reconnecting: a part of this page could not be loaded. It will be loaded again in a few seconds.";
      banner.dataset.kind = "waiting";
      banner.hidden = false;
    };
    if (document.readyState === "loading") addEventListener("DOMContentLoaded", tell);
    else tell();
    setTimeout(() => location.reload(), PAUSE);
  },
  true, // it does not bubble
);
