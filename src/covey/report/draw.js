// Small drawing kit: elements, scales, ticks, numbers in words, and the one read-out that follows the pointer.

const html = (name, attributes = {}, ...parts) => fill(document.createElement(name), attributes, parts);
const svg = (name, attributes = {}, ...parts) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, parts);

function fill(element, attributes, parts) {
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...parts.flat().filter((part) => part !== null && part !== undefined));
  return element;
}

const colour = (place) => `var(--c${((place % 10) + 10) % 10})`;
const dash = (place) => ["", "7 4", "2 4", "9 3 2 3"][Math.floor(place / 5) % 4] || null;
const colourOfGroup = (group) => (group < 0 ? "var(--c7)" : colour(group));
const shortened = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
const clientName = (names, client) => names[client] ?? `client ${client}`;
const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

// Numbers in words: the same rules as in the tables.
const digits = (value, count) => String(Number(value.toPrecision(count)));
const showCount = (value) => value.toLocaleString("en-US", { maximumFractionDigits: 1 });
function showBytes(value) {
  for (const [unit, size] of [["TB", 1e12], ["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) {
    if (value >= size) return `${digits(value / size, 3)} ${unit}`;
  }
  return `${Math.round(value)} B`;
}
function showSeconds(value) {
  for (const [unit, size, start] of [["d", 86400, 172800], ["h", 3600, 7200], ["min", 60, 120]]) {
    if (value >= start) return `${digits(value / size, 3)} ${unit}`;
  }
  return `${digits(value, 3)} s`;
}
const showValue = (about, value) =>
  !isNumber(value) ? "–" : about.share ? `${(100 * value).toFixed(2)}%` : digits(value, 4);
const showTarget = (about, value) => (about.share ? `${digits(100 * value, 6)}%` : digits(value, 6));

const AXES = {
  round: { word: "Rounds", title: "round", whole: true, show: (v) => `round ${showCount(v)}`, tick: showCount },
  seconds: { word: "Time", title: "simulated time", show: showSeconds, tick: showSeconds, steps: [60, 3600, 86400] },
  bytes: { word: "Bytes", title: "bytes of all messages", show: showBytes, tick: showBytes },
  messages: { word: "Messages", title: "messages", whole: true, show: (v) => `${showCount(v)} messages`, tick: showCount },
};

// Round tick values that cover [low, high] with about `count` steps; `units` are larger units to be round in.
function ticks(low, high, count, units = []) {
  if (!(high > low)) return [low];
  const unit = units.filter((u) => high - low >= 2 * u).pop() || 1;
  const rough = (high - low) / unit / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = unit * power * [1, 2, 2.5, 5, 10].find((s) => s * power >= rough * 0.999);
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k += 1) found.push(k * step + 0);
  return found;
}

const scale = (low, high, from, to) => (value) => from + ((value - low) / (high - low || 1)) * (to - from);

// An svg as wide as its place; `describe` is what a screen reader says.
function canvas(place, height, describe) {
  const width = Math.max(160, Math.round(place.clientWidth || 900));
  return { width, height, root: svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": describe }) };
}

// Grid lines and labels of both axes inside the box {left, right, top, bottom}.
function axes(root, box, xs, x, xLabel, ys, y, yLabel) {
  for (const value of ys) {
    root.append(
      svg("line", { class: "grid", x1: box.left, x2: box.right, y1: y(value), y2: y(value) }),
      svg("text", { x: box.left - 8, y: y(value) + 4, "text-anchor": "end" }, yLabel(value)),
    );
  }
  for (const value of xs) {
    root.append(
      svg("line", { class: "axis", x1: x(value), x2: x(value), y1: box.bottom, y2: box.bottom + 4 }),
      svg("text", { x: x(value), y: box.bottom + 18, "text-anchor": "middle" }, xLabel(value)),
    );
  }
  root.append(svg("line", { class: "axis", x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom }));
}

const path = (points) => points.map(([a, b], place) => `${place ? "L" : "M"}${a.toFixed(1)} ${b.toFixed(1)}`).join("");

// The read-out: a title and rows of [name, value, colour].
const tip = document.getElementById("tip");
function showTip(clientX, clientY, title, rows) {
  const body = rows.map(([name, value, hue]) =>
    html("tr", {},
      html("td", {}, hue ? html("span", { class: "swatch", style: `--hue:${hue}` }) : null, name),
      html("td", { class: "num" }, value)));
  tip.replaceChildren(html("b", {}, title), html("table", {}, html("tbody", {}, body)));
  tip.classList.add("on");
  const { offsetWidth: w, offsetHeight: h } = tip;
  const left = clientX + 18 + w > innerWidth ? clientX - w - 18 : clientX + 18;
  tip.style.transform = `translate(${Math.max(4, left)}px, ${Math.max(4, Math.min(clientY - h / 2, innerHeight - h - 4))}px)`;
}
const hideTip = () => tip.classList.remove("on");

// One choice out of several, as a row of buttons.
function segments(label, choices, chosen, choose) {
  const buttons = choices.map(([value, word]) =>
    html("button", { type: "button", "data-key": `${label}/${value}`, "aria-pressed": String(value === chosen), onclick: () => choose(value) }, word));
  return html("span", { class: "segments", role: "group", "aria-label": label }, buttons);
}

// Arrow keys walk over `count` places from the one that `where()` says, and `go(place)` shows one; Escape and leaving hide.
function walk(root, pad, count, where, go, hide) {
  pad.addEventListener("pointerleave", hide);
  root.setAttribute("tabindex", "0");
  root.addEventListener("blur", hide);
  root.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity }[event.key];
    if (step === undefined) return event.key === "Escape" ? hide() : undefined;
    event.preventDefault();
    return go(Math.max(0, Math.min(count - 1, where() + step)));
  });
}

// Pointer and arrow keys choose one of `count` columns of a chart; `show(place)` tells, null hides.
function scrub(root, box, count, show) {
  const pad = svg("rect", { x: box.left, y: box.top, width: box.right - box.left, height: box.bottom - box.top, fill: "transparent" });
  let here = 0;
  const tell = (place) => {
    here = place;
    const frame = root.getBoundingClientRect();
    const ratio = frame.width / root.viewBox.baseVal.width;
    const across = box.left + ((place + 0.5) / count) * (box.right - box.left);
    show(place, frame.left + across * ratio, frame.top + ((box.top + box.bottom) / 2) * ratio);
  };
  const hide = () => { hideTip(); show(null); };
  const placeOf = (event) => {
    const frame = root.getBoundingClientRect();
    const across = ((event.clientX - frame.left) / frame.width) * root.viewBox.baseVal.width;
    return Math.max(0, Math.min(count - 1, Math.floor(((across - box.left) / (box.right - box.left)) * count)));
  };
  pad.addEventListener("pointermove", (event) => tell(placeOf(event)));
  walk(root, pad, count, () => here, tell, hide);
  root.append(pad);
  return { pad, placeOf };
}

const quantile = (sorted, share) => {
  const at = (sorted.length - 1) * share;
  const low = Math.floor(at);
  return sorted[low] + (sorted[Math.min(low + 1, sorted.length - 1)] - sorted[low]) * (at - low);
};

const caption = (title, small) => html("figcaption", {}, title, small ? html("small", {}, small) : null);
