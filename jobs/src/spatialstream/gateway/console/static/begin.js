// Loaded first, and by itself: where another part of the page does not come, it is asked for again.

const PAUSE = 5_000; // ms

addEventListener(
  "error",
  ({ target }) => {
    if (target instanceof HTMLLinkElement && target.rel === "stylesheet") setTimeout(() => target.replaceWith(target.cloneNode()), PAUSE);
    if (!(target instanceof HTMLScriptElement)) return;
    const tell = () => {
      const banner = document.getElementById("banner");
      banner.textContent = "Reconnecting: a part of this page has not come. It is loaded again in some seconds.";
      banner.dataset.kind = "waiting";
      banner.hidden = false;
    };
    if (document.readyState === "loading") addEventListener("DOMContentLoaded", tell);
    else tell();
    setTimeout(() => location.reload(), PAUSE);
  },
  true, // it does not bubble
);
