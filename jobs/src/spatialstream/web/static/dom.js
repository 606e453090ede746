// Elements, made in one expression.

/**
 * An element. Attributes that are functions are listeners (`onclick`), `class` and `text` are what they say, and those that
 * are null, undefined or false are left out.
 */
export function el(name, attributes = {}, ...children) {
  const [tag, space] = name.startsWith("svg:") ? [name.slice(4), "http://www.w3.org/2000/svg"] : [name, null];
  const made = space ? document.createElementNS(space, tag) : document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "text") made.textContent = value;
    else if (typeof value === "function") made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.flat().filter((each) => each !== null && each !== undefined && each !== false));
  return made;
}

/** A drawing of the icons in the page, by name. */
export function icon(name) {
  const drawn = el("svg:svg", { class: "icon", viewBox: "0 0 16 16", "aria-hidden": "true" });
  drawn.append(el("svg:use", { href: `#icon-${name}` }));
  return drawn;
}

/** Sets a text only where it is another one, so that nothing is laid out or read anew for nothing. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Whether nothing is to move, as some people need it. */
export const still = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

const probe = el("i", { hidden: true });

/** A colour of the style, as it is now: by numbers, which a canvas takes and the map's library. */
export function colour(name) {
  if (!probe.isConnected) document.body.append(probe);
  probe.style.color = `var(--${name})`;
  return getComputedStyle(probe).color;
}

/** Lets a tip say lines beside a point of what it lies in, and not beyond its edges; null: nothing. */
export function tell(tip, lines, point) {
  tip.hidden = lines === null;
  if (tip.hidden) return;
  const [x, y] = point;
  tip.replaceChildren(...lines.map((text, i) => el(i ? "span" : "b", { text })));
  const { clientWidth: width, clientHeight: height } = tip.parentElement;
  tip.style.left = `${Math.max(4, Math.min(width - tip.offsetWidth - 4, x + 14))}px`;
  tip.style.top = `${y + 16 + tip.offsetHeight < height ? y + 16 : Math.max(4, y - tip.offsetHeight - 12)}px`;
}

/** Calls something at most once in so many ms, the last time included. */
export function paced(ms, work) {
  let timer = null;
  let last = 0;
  return () => {
    if (timer !== null) return;
    timer = setTimeout(
      () => {
        timer = null;
        last = performance.now();
        work();
      },
      Math.max(0, last + ms - performance.now()),
    );
  };
}
