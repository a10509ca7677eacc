// The live page: rows come once, then only those that change (server-sent events); sorting and filtering happen here.
// Elements and scales are those of the report (draw.js).
"use strict";

const at = (id) => document.getElementById(id);
const PART = 60; // rows that are drawn at once; the next ones when the end of the table comes into view
const state = { rows: new Map(), settings: [], metrics: [], about: {}, sort: "at", down: true, picked: new Set(), metric: "", words: "" };

// ---------------------------------------------------------------- numbers in words

const count = (value) => (isNumber(value) ? value.toLocaleString("en") : "");
function bytes(value) {
  if (!isNumber(value)) return "";
  for (const [unit, size] of [["TB", 1e12], ["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) if (value >= size) return `${Number((value / size).toPrecision(3))}\u00a0${unit}`;
  return `${value}\u00a0B`;
}
function seconds(value) {
  if (!isNumber(value)) return "";
  if (value >= 7200) return `${Number((value / 3600).toPrecision(3))}\u00a0h`;
  if (value >= 120) return `${Number((value / 60).toPrecision(3))}\u00a0min`;
  return `${value < 10 ? Number(value.toPrecision(2)) : Math.round(value)}\u00a0s`;
}
function metric(name, value) {
  if (!isNumber(value)) return "";
  return state.about[name] && state.about[name].share ? `${(100 * value).toFixed(2)}%` : String(Number(value.toPrecision(4)));
}

// ---------------------------------------------------------------- columns

// The folder of a comparison, sweep or tuning that a run is part of; "" for a run of its own.
function studyOf(row) { return row.id.includes("/") ? row.id.split("/")[0] : ""; }
function when(at) {
  const time = new Date(1000 * at), two = (n) => String(n).padStart(2, "0");
  const day = time.toDateString() === new Date().toDateString() ? "" : `${time.getFullYear()}-${two(time.getMonth() + 1)}-${two(time.getDate())} `;
  return at ? `${day}${two(time.getHours())}:${two(time.getMinutes())}` : "";
}

function columns() {
  const studies = [...state.rows.values()].some(studyOf);
  const shown = state.metric ? [state.metric] : [];
  const plain = [
    { key: "name", head: "run", text: (row) => row.name || row.id },
    ...(studies ? [{ key: "study", head: "study", text: (row) => studyOf(row) }] : []),
    { key: "at", head: "begun", text: (row) => when(row.at) },
    { key: "state", head: "state", text: (row) => (row.problem ? `${row.state}: ${row.problem}` : row.state) },
    { key: "method", head: "method", text: (row) => row.method },
    { key: "dataset", head: "data", text: (row) => row.dataset + (row.validation ? " (validation)" : "") },
    { key: "seed", head: "seed", number: true, text: (row) => String(row.seed) },
    { key: "round", head: "round", number: true, text: (row) => `${count(row.round)} of ${count(row.rounds)}` },
  ];
  const measured = shown.map((name) => ({ key: name, wide: true, head: state.about[name] ? state.about[name].title : name, number: true, text: (row) => metric(name, value(row, name)) }));
  const costs = [
    { key: "seconds", head: "simulated time", number: true, text: (row) => seconds(row.seconds) },
    { key: "bytes", head: "traffic", number: true, text: (row) => bytes(row.bytes) },
  ];
  const rows = [...state.rows.values()];
  const differs = (name) => new Set(rows.map((row) => value(row, name)).filter((v) => v !== null && v !== undefined)).size > 1;
  const room = Math.max(2, Math.floor((innerWidth - 850) / 115));  // of 1280 pixels nothing is cut; the filter knows all settings
  const settings = state.settings.filter(differs).slice(0, Math.min(12, room)).map((name) => ({ key: name, head: name, number: true, text: (row) => { const v = value(row, name); return v === null || v === undefined ? "" : String(typeof v === "number" ? Number(v.toPrecision(4)) : v); } }));
  return [...plain, ...measured, ...costs, ...settings];
}

// Any setting or metric of a row by its name; a name's end is enough.
function value(row, name) {
  if (name === "study") return studyOf(row);
  if (name in row) return row[name];
  const s = state.settings.indexOf(name);
  if (s >= 0) return row.s[s];
  const m = state.metrics.indexOf(name);
  return m >= 0 ? row.m[m] : undefined;
}
function fullName(name) {
  const known = ["id", "name", "state", "method", "dataset", "seed", "round", "rounds", "clients", "seconds", "bytes", "messages", ...state.settings, ...state.metrics];
  return known.includes(name) ? name : known.find((one) => one.endsWith(name)) || known.find((one) => one.includes(name));
}

// ---------------------------------------------------------------- filter and sort

function filter(words) {
  const tests = words.trim().split(/\s+/).filter(Boolean).map((word) => {
    const parts = /^([^<>=]+)(<=|>=|=|<|>)(.+)$/.exec(word);
    if (!parts) {
      const low = word.toLowerCase();
      return (row) => `${row.id} ${row.name} ${row.method} ${row.dataset} ${row.state} ${row.problem}`.toLowerCase().includes(low);
    }
    const name = fullName(parts[1]);
    const right = parts[3].endsWith("%") ? Number(parts[3].slice(0, -1)) / 100 : Number(parts[3]);
    return (row) => {
      const left = name === undefined ? undefined : value(row, name);
      if (left === null || left === undefined) return false;
      if (parts[2] === "=") return String(left) === parts[3] || (Number.isFinite(right) && Number(left) === right);
      if (!Number.isFinite(right) || !Number.isFinite(Number(left))) return false;
      return { "<": left < right, ">": left > right, "<=": left <= right, ">=": left >= right }[parts[2]];
    };
  });
  return (row) => tests.every((test) => test(row));
}

function sorted(rows) {
  const order = (a, b) => {
    const [x, y] = [value(a, state.sort), value(b, state.sort)];
    const none = (v) => v === null || v === undefined || v === "";
    if (none(x) || none(y)) return none(x) - none(y);
    const by = isNumber(x) && isNumber(y) ? x - y : String(x).localeCompare(String(y), "en", { numeric: true });
    return state.down ? -by : by;
  };
  return rows.sort((a, b) => order(a, b) || (a.id < b.id ? -1 : 1));
}

// ---------------------------------------------------------------- drawing

let heads = []; // the columns
let listed = []; // the rows that pass the filter, in order
let lines = new Map(); // id -> [row, its element]: an element is made once and used again until its row changes

function draw(rows = PART) {
  const held = document.activeElement; // the keyboard stays where it is
  heads = columns();
  listed = sorted([...state.rows.values()].filter(filter(state.words)));
  at("table").tHead.replaceChildren(html("tr", {}, html("th", { scope: "col" }, html("span", { class: "dim" }, "pick")),
    heads.map((column) => html("th", { scope: "col", class: `of-${column.key}${column.number ? " num" : ""}${column.wide ? " measured" : ""}`, "aria-sort": state.sort === column.key ? (state.down ? "descending" : "ascending") : null },
      html("button", { type: "button", "data-key": column.key }, column.head + (state.sort === column.key ? (state.down ? " ↓" : " ↑") : ""))))));
  at("table").setAttribute("aria-rowcount", listed.length + 1);
  at("table").tBodies[0].replaceChildren(...listed.slice(0, rows).map(line));
  countShown();
  facts();
  const same = held.isConnected ? held : [...at("table").tHead.querySelectorAll("button")].find((one) => one.dataset.key === held.dataset.key);
  if (same && same !== document.activeElement) same.focus({ preventScroll: true });
}

// As many rows as there are, after something came in.
function drawAgain() { draw(Math.max(PART, at("table").tBodies[0].rows.length)); }

// After the user asked for other rows or another order.
function drawFromTop() {
  at("table").closest(".scroll").scrollTop = 0;
  draw();
}

function drawMore(rows) {
  const body = at("table").tBodies[0];
  body.append(...listed.slice(body.rows.length, body.rows.length + rows).map(line));
  countShown();
}

function countShown() {
  at("more").hidden = at("table").tBodies[0].rows.length >= listed.length;
  at("show-all").textContent = `Show all ${count(listed.length)}`;
  at("count").textContent = `${count(listed.length)} of ${count(state.rows.size)} runs`;
}

function line(row) {
  const known = lines.get(row.id);
  if (known && known[0] === row) return known[1];
  const picked = state.picked.has(row.id);
  const box = html("input", { type: "checkbox", "aria-label": `Pick ${row.name} ${row.id}` });
  box.checked = picked;
  const cells = heads.map((column) => {
    const text = column.text(row);
    if (column.key === "name") return html("th", { scope: "row" }, html("a", { href: `report?run=${encodeURIComponent(row.id)}`, title: row.id }, text));
    return html("td", { class: [`of-${column.key}`, column.number ? "num" : "", column.key === "state" ? row.state : ""].join(" ").trim() }, text);
  });
  const made = html("tr", { class: picked ? "picked" : null, "data-id": row.id }, html("td", {}, box), cells);
  lines.set(row.id, [row, made]);
  return made;
}

// A row that changed is drawn in its place, unless somebody is in it with the keyboard.
function drawLine(row) {
  const known = lines.get(row.id);
  if (!known || known[1].contains(document.activeElement)) return;
  const fresh = line(row);
  if (known[1].isConnected) known[1].replaceWith(fresh);
}

function facts() {
  const every = [...state.rows.values()];
  const of = (what) => every.filter((row) => row.state === what).length;
  at("facts").replaceChildren(...["running", "finished", "pruned", "stopped", "damaged"].filter((what) => ["running", "finished", "stopped"].includes(what) || of(what)).map((what) => html("span", {}, `${count(of(what))} ${what}`)));
}

function pick(id, on) {
  if (on) state.picked.add(id); else state.picked.delete(id);
  const known = lines.get(id);
  if (known) known[1].classList.toggle("picked", on);
  at("compare").disabled = !state.picked.size;
  at("compare").textContent = state.picked.size ? `Compare ${state.picked.size} selected` : "Compare selected";
}

// ---------------------------------------------------------------- runs in progress

const cards = new Map();

async function drawCards() {
  const running = [...state.rows.values()].filter((row) => row.state === "running").sort((a, b) => b.at - a.at).slice(0, 24);
  at("progress").hidden = !running.length;
  for (const id of cards.keys()) if (!running.some((row) => row.id === id)) { cards.get(id).remove(); cards.delete(id); }
  for (const row of running) {
    if (!cards.has(row.id)) { const card = html("article", { class: "card", "data-id": row.id }); fillCard(card, row, {}); cards.set(row.id, card); at("cards").append(card); }
    try {
      const detail = await (await fetch(`api/run?id=${encodeURIComponent(row.id)}`)).json();
      fillCard(cards.get(row.id), row, detail);
      if (detail.status && detail.status.now) drawSites(row, detail.status);
    } catch { /* one that cannot be drawn holds up no other; the next look will tell */ }
  }
  if (shownSites && !running.some((row) => row.id === shownSites)) at("sites-body").replaceChildren(html("p", {}, "The server of this run has ended."));
}

function fillCard(card, row, detail) {
  const share = row.rounds ? row.round / row.rounds : 0;
  const curve = (detail.curves || {})[state.metric] || [];
  const groups = Object.entries(detail.groups || {});
  const working = Object.values(detail.working || {}).at(-1);
  const bar = html("div", { class: "bar", role: "progressbar", "aria-label": `Rounds of ${row.name}`, "aria-valuemin": 0, "aria-valuemax": row.rounds, "aria-valuenow": row.round }, html("i", {}));
  bar.firstChild.style.width = `${100 * share}%`;
  const cluster = html("div", { class: "cluster", "aria-hidden": "true" }, groups.map(([group, size]) => { const part = html("i", {}); part.style.flex = size; part.style.background = `var(--c${group % 10})`; return part; }));
  card.replaceChildren(
    html("h3", {}, html("a", { href: `report?run=${encodeURIComponent(row.id)}` }, row.name), html("span", { class: "dim" }, `seed ${row.seed}`)),
    html("p", {}, html("span", { class: "big" }, metric(state.metric, value(row, state.metric)) || "–"), ` ${state.about[state.metric] ? state.about[state.metric].title : ""}`),
    spark(curve), bar,
    html("p", {}, `round ${count(row.round)} of ${count(row.rounds)}${isNumber(row.left) ? `, ${seconds(row.left)} left` : ""}`),
    html("p", {}, `${working ? `${count(working)} devices training · ` : ""}${seconds(row.seconds)} simulated · ${bytes(row.bytes)} · ${count(row.messages)} messages`),
    ...(groups.length ? [html("p", {}, `${groups.length} cluster${groups.length > 1 ? "s" : ""}: ${groups.slice(0, 8).map(([, size]) => size).join(", ")}${groups.length > 8 ? ", ..." : ""} clients`), cluster] : []),
    ...(row.waits && row.waits.length ? [html("p", {}, `waits for ${row.waits.slice(0, 6).join(", ")}`)] : []));
}

function spark(curve) {
  const picture = svg("svg", { viewBox: "0 0 300 50", preserveAspectRatio: "none", "aria-hidden": "true" });
  if (curve.length > 1) {
    const [xs, ys] = [curve.map((p) => p[0]), curve.map((p) => p[1])];
    const x = scale(Math.min(...xs), Math.max(...xs), 0, 300), y = scale(Math.min(...ys), Math.max(...ys), 48, 2);
    picture.append(svg("path", { d: path(curve.map(([a, b]) => [x(a), y(b)])), fill: "none", stroke: "var(--accent)", "stroke-width": 2, "vector-effect": "non-scaling-stroke" }));
  }
  return picture;
}

// ---------------------------------------------------------------- sites of a run over real ones

function ago(now, then) { return then ? `${seconds(Math.max(0, now - then))} ago` : "never"; }

let shownSites = "";

function drawSites(row, status) {
  shownSites = row.id;
  const head = (words) => html("thead", {}, html("tr", {}, words.map((word) => html("th", { scope: "col" }, word))));
  const cells = (words) => words.map((word) => html("td", {}, word));
  const sites = status.sites.map((site) => html("tr", {}, html("th", { scope: "row" }, site.name),
    html("td", { class: site.state === "connected" ? "ok" : "bad" }, site.why ? `${site.state}: ${site.why}` : site.state),
    cells([ago(status.time, site.last_seen), site.doing ? `${site.doing}, round ${site.round}` : "", bytes(site.bytes_in), bytes(site.bytes_out), site.seconds.toFixed(1), String(site.answers), String(site.lost)])));
  const refused = status.refused.map((one) => html("tr", {}, cells([one.key, one.why, String(one.count), ago(status.time, one.last_seen)])));
  at("sites").hidden = false;
  at("sites-head").textContent = `Sites of ${row.name}`;
  at("sites-body").replaceChildren(
    html("p", {}, `${ago(Date.now() / 1000, status.time)}: round ${status.now.round}${status.now.rounds ? ` of ${status.now.rounds}` : ""}: ${status.now.doing}; waits for ${status.now.waits_for.join(", ") || "nobody"}`),
    html("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Sites" }, html("table", { class: "wide" }, head(["site", "state", "last seen", "doing", "received", "sent", "seconds", "answers", "lost"]), html("tbody", {}, sites))),
    ...(refused.length ? [html("h3", {}, "Refused requests"), html("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Refused requests" }, html("table", {}, head(["key", "why", "times", "last"]), html("tbody", {}, refused)))] : []));
  document.querySelectorAll("[data-first]").forEach((element) => element.remove());
}

// ---------------------------------------------------------------- what comes in

function take(message) {
  if (message.all) {
    const { settings, metrics, about, runs } = message.all;
    Object.assign(state, { settings, metrics, about, rows: new Map(runs.map((row) => [row.id, row])) });
    if (!metrics.includes(state.metric)) state.metric = metrics.find((name) => name.endsWith("accuracy-mean")) || metrics[0] || "";
    at("metric").replaceChildren(...metrics.map((name) => { const option = html("option", { value: name }, about[name].title); option.selected = name === state.metric; return option; }));
    lines = new Map();
    drawAgain();
  } else {
    const before = state.rows.size;
    for (const row of message.runs) {
      state.rows.set(row.id, row);
      drawLine(row);
    }
    if (state.rows.size !== before || message.runs.some((row) => row.state !== "running")) drawAgain(); else facts();
  }
  drawCards();
}

let waiting = 0;
at("filter").addEventListener("input", (event) => {
  state.words = event.target.value;
  cancelAnimationFrame(waiting);
  waiting = requestAnimationFrame(drawFromTop);
});
at("metric").addEventListener("change", (event) => { state.metric = event.target.value; lines = new Map(); drawAgain(); drawCards(); });
at("table").tHead.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  const key = button.dataset.key;
  state.down = state.sort === key ? !state.down : Boolean(heads.find((column) => column.key === key).number);
  state.sort = key;
  drawFromTop();
});
at("table").tBodies[0].addEventListener("change", (event) => pick(event.target.closest("tr").dataset.id, event.target.checked));
at("show-all").addEventListener("click", () => drawMore(Infinity));
addEventListener("beforeprint", () => drawMore(Infinity));
new IntersectionObserver((seen) => { if (seen.some((one) => one.isIntersecting)) drawMore(PART); }, { root: at("table").closest(".scroll"), rootMargin: "600px" }).observe(at("more"));
at("compare").addEventListener("click", () => { location.href = `report?${[...state.picked].map((id) => `run=${encodeURIComponent(id)}`).join("&")}`; });

const source = new EventSource("api/events");
source.onmessage = (event) => take(JSON.parse(event.data));
source.onerror = () => { if (shownSites) at("sites-body").replaceChildren(html("p", {}, "The server does not answer: who is there is not known.")); at("facts").replaceChildren(html("span", {}, "the server is gone; this is what it said last")); };
