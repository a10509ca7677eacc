// The state of the page lives in the address (#x=bytes&metric=...), so that a view can be linked to and comes back.

const data = JSON.parse(document.getElementById("data").textContent);
const places = (chart) => [...document.querySelectorAll(`[data-chart="${chart}"]`)];
const at = (id) => document.getElementById(id);

function stateFromAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  const metrics = Object.keys(data.metrics);
  const metric = metrics.includes(given.get("metric")) ? given.get("metric") : metrics.includes(data.metric) ? data.metric : metrics[0];
  const run = Number(given.get("run") ?? 0);
  const target = given.has("target") ? given.get("target") : data.targets[metric] ?? null;
  return {
    metric, targetMetric: metric,
    x: given.get("x") in AXES ? given.get("x") : "round",
    show: given.get("show") === "groups" ? "groups" : "spread",
    run: Number.isInteger(run) && data.runs[run] ? run : 0,
    round: given.has("round") ? Number(given.get("round")) : null,
    hide: new Set(given.getAll("hide")),
    target: target === null || target === "" || !Number.isFinite(Number(target)) ? null : Number(target),
  };
}

let state = stateFromAddress();

function change(step, redraw = true) {
  state = { ...state, ...step };
  const words = new URLSearchParams();
  if (state.x !== "round") words.set("x", state.x);
  if (state.metric !== data.metric) words.set("metric", state.metric);
  if (state.show !== "spread") words.set("show", state.show);
  if (state.run) words.set("run", state.run);
  if (state.round !== null) words.set("round", state.round);
  if (state.target !== null && state.target !== (data.targets[state.metric] ?? null)) words.set("target", state.target);
  for (const name of state.hide) words.append("hide", name);
  try { history.replaceState(null, "", `#${words}`); } catch { /* a page from disk may not be allowed to */ }
  if (redraw) draw();
}

function drawControls() {
  const about = data.metrics[state.metric];
  const metric = html("select", { id: "metric", "data-key": "metric", onchange: (event) => change({ metric: event.target.value, targetMetric: event.target.value, target: data.targets[event.target.value] ?? null }) },
    Object.entries(data.metrics).map(([name, { title }]) => html("option", { value: name, selected: name === state.metric }, title)));
  const axis = segments("Horizontal axis", Object.entries(AXES).map(([name, { word }]) => [name, word]), state.x, (x) => change({ x }));
  const shown = isNumber(state.target) ? digits(about.share ? 100 * state.target : state.target, 6) : "";
  const target = html("input", { id: "target", "data-key": "target", type: "number", step: "any", value: shown, placeholder: "none",
    onchange: (event) => change({ target: event.target.value === "" ? null : Number(event.target.value) / (about.share ? 100 : 1) }) });
  const parts = [html("label", { for: "metric" }, "Metric"), metric, html("span", { class: "word" }, "against"), axis,
    html("label", { for: "target" }, about.share ? "Target, %" : "Target"), target];
  const curve = data.runs[0].curves[state.metric];
  if (data.runs.length === 1 && curve && Object.keys(curve.groups).length) {
    parts.push(segments("Lines", [["spread", "All clients"], ["groups", "By group"]], state.show, (show) => change({ show, hide: new Set() })));
  }
  at("curve-controls").replaceChildren(...parts);
  at("curve-note").textContent = curveNote();
}

function curveNote() {
  const single = data.runs.some((run) => (run.curves[state.metric] || {}).seeds?.runs);
  const words = data.seeds > 1 ? [`Lines are means over ${data.seeds} seeds; ${single ? "thin lines are the single runs" : "bands hold their 95% intervals"}.`] : [];
  const thinned = data.runs.filter((run) => run.clock.round.length < run.rounds);
  if (thinned.length) words.push(`Drawn at ${thinned[0].clock.round.length} of ${showCount(thinned[0].rounds)} rounds, the best among them.`);
  const curve = data.runs[0].curves[state.metric];
  if (state.show === "groups" && data.runs.length === 1 && curve && curve.of > Object.keys(curve.groups).length) {
    words.push(`The ${Object.keys(curve.groups).length} largest of ${curve.of} groups are drawn.`);
  }
  return ["Rings mark the best round.", ...words].join(" ");
}

// A picture that cannot be drawn (a note of an odd shape) must not take the rest of the page with it.
function attempt(place, drawing) {
  try { drawing(); } catch (problem) {
    console.error(problem);
    place.replaceChildren(html("p", { class: "hint" }, "This picture cannot be drawn from what the run left."));
  }
}

function draw() {
  const focused = document.activeElement && document.activeElement.dataset.key;
  hideTip();
  drawControls();
  attempt(at("curve-chart"), () => drawCurves(at("curve-chart"), data, state));
  drawLegend(at("curve-legend"), data, state, change);
  drawReach(at("curve-reach"), data, state);
  attempt(at("spread-chart"), () => drawSpread(at("spread-chart"), at("spread-lead"), data));
  if (at("run-picker")) {
    at("run-picker").replaceChildren(html("span", { class: "word" }, "Details of"),
      segments("Run", data.runs.map((run, place) => [place, run.label]), state.run, (run) => change({ run, round: null })));
  }
  document.querySelectorAll("article.run").forEach((article, place) => { article.hidden = place !== state.run; });
  const run = data.runs[state.run];
  const [fleet, timeline, notes] = ["fleet", "timeline", "notes"].map((chart) => places(chart)[state.run]);
  attempt(fleet, () => drawFleet(fleet, run));
  attempt(timeline, () => drawTimeline(timeline, run, state, change));
  drawNotes(notes, run);
  if (focused) [...document.querySelectorAll("[data-key]")].find((element) => element.dataset.key === focused)?.focus();
}

// Links to a part of the page jump within the run that is open, and leave the state in the address alone.
document.querySelectorAll("nav a").forEach((link) => link.addEventListener("click", (event) => {
  const name = link.getAttribute("href").slice(1);
  const part = document.querySelector(`article[data-run="${state.run}"] [data-part="${name}"]`) || at(name);
  event.preventDefault();
  part.scrollIntoView();
  part.setAttribute("tabindex", "-1");
  part.focus({ preventScroll: true });
}));

let waiting = 0;
addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(draw, 120); });
addEventListener("hashchange", () => { state = stateFromAddress(); draw(); });
draw();
