// Pictures of what the method left: the choice of k, the map of clients, label curves, the spread of models, the graph.

const DRAW = {
  silhouette: (place, note) => drawChoice(place, note),
  scatter: (place, note, run) => drawScatter(place, note, run.names),
  spread: (place, note) => drawDecay(place, note),
  labels: (place, note, run) => drawLabelCurves(place, note, note.names || run.classes),
  graph: (place, note, run) => drawGraph(place, note, run.names),
};
const TITLES = {
  silhouette: "How many clusters: the silhouette of every k",
  scatter: "Clients by likeness",
  spread: "How far apart the models are",
  labels: "Label mix of every client, by cluster",
  graph: "Who sends to whom",
};

function drawNotes(place, run) {
  const figures = run.notes.map(({ name, kind, note, left_out: left }) => {
    const suffix = name === kind ? "" : ` (${name.slice(kind.length + 1)})`;
    const figure = html("figure", {}, caption((typeof note.title === "string" && note.title ? note.title : TITLES[kind]) + suffix, left));
    const inner = html("div");
    figure.append(inner);
    return { figure, inner, kind, note };
  });
  const small = figures.filter(({ kind }) => ["silhouette", "scatter", "spread"].includes(kind));
  const large = figures.filter(({ kind }) => !["silhouette", "scatter", "spread"].includes(kind));
  place.replaceChildren(...(small.length ? [html("div", { class: "pair" }, small.map((f) => f.figure))] : []), ...large.map((f) => f.figure));
  for (const { inner, kind, note } of figures) attempt(inner, () => DRAW[kind](inner, note, run));
}

function drawChoice(place, note) {
  const points = note.k.map((k, at) => [k, note.score[at]]).filter(([, score]) => isNumber(score));
  const { width, height, root } = canvas(place, 240, "Silhouette score by number of clusters");
  const box = { left: 48, right: width - 16, top: 16, bottom: height - 40 };
  const scores = points.map((p) => p[1]);
  const low = Math.min(0, ...scores), high = Math.max(...scores) * 1.08 || 1;
  const x = scale(points[0][0], points.at(-1)[0], box.left + 8, box.right - 8), y = scale(low, high, box.bottom, box.top);
  const whole = ticks(points[0][0], points.at(-1)[0], Math.min(points.length, width / 60)).filter(Number.isInteger);
  axes(root, box, whole, x, String, ticks(low, high, 5), y, (v) => digits(v, 3));
  root.append(svg("path", { class: "line", stroke: "var(--c0)", d: path(points.map(([a, b]) => [x(a), y(b)])) }));
  for (const [k, score] of points) {
    const chosen = k === note.chosen;
    if (chosen) root.append(svg("line", { class: "end", x1: x(k), x2: x(k), y1: box.bottom, y2: y(score) }),
      svg("text", { class: "name", x: x(k), y: y(score) - 11, "text-anchor": "middle" }, `k = ${k}`));
    if (chosen || points.length < 60) root.append(svg("circle", { cx: x(k), cy: y(score), r: chosen ? 6 : 3, fill: chosen ? "var(--alarm)" : "var(--c0)",
      onpointerenter: (event) => showTip(event.clientX, event.clientY, `k = ${k}`, [["silhouette", digits(score, 4)]]), onpointerleave: hideTip }));
  }
  root.append(svg("text", { x: (box.left + box.right) / 2, y: height - 4, "text-anchor": "middle" }, "number of clusters k"));
  place.replaceChildren(root);
}

function drawScatter(place, note, names) {
  const groups = note.group || note.x.map(() => 0);
  const { width, height, root } = canvas(place, 300, "Clients in two dimensions, coloured by cluster");
  const box = { left: 10, right: width - 10, top: 10, bottom: height - 10 };
  const low = [Math.min(...note.x), Math.min(...note.y)], high = [Math.max(...note.x), Math.max(...note.y)];
  const x = scale(low[0], high[0], box.left + 8, box.right - 8), y = scale(low[1], high[1], box.bottom - 8, box.top + 8);
  root.append(svg("rect", { x: box.left, y: box.top, width: box.right - box.left, height: box.bottom - box.top, rx: 8, fill: "var(--wash)" }));
  const radius = note.x.length > 400 ? 2.4 : 4.5;
  note.x.forEach((value, at) => {
    const client = note.client ? note.client[at] : at;
    root.append(svg("circle", { cx: x(value), cy: y(note.y[at]), r: radius, fill: colourOfGroup(groups[at]), opacity: 0.85,
      onpointerenter: (event) => showTip(event.clientX, event.clientY, clientName(names, client), [["cluster", String(groups[at]), colourOfGroup(groups[at])]]), onpointerleave: hideTip }));
  });
  place.replaceChildren(root, groupKeys(groups));
}

// A key of at most 12 groups.
function groupKeys(groups) {
  const distinct = [...new Set(groups)].sort((a, b) => a - b);
  if (distinct.length < 2) return "";
  const keys = distinct.slice(0, 12).map((group) => html("span", { class: "key" }, html("span", { class: "box", style: `--hue:${colourOfGroup(group)}` }), group < 0 ? "no cluster" : `cluster ${group}`));
  const more = distinct.length > 12 ? [html("span", { class: "key" }, `and ${distinct.length - 12} more, colours repeat`)] : [];
  return html("div", { class: "legend" }, keys, more);
}

function drawDecay(place, note) {
  const points = note.round.map((round, at) => [round, note.value[at]]).filter(([, value]) => isNumber(value));
  if (!points.length) return place.replaceChildren(html("p", { class: "hint" }, "No finite value."));
  const { width, height, root } = canvas(place, 240, "Spread of the models by round");
  const box = { left: 64, right: width - 16, top: 12, bottom: height - 40 };
  const values = points.map((p) => p[1]);
  const least = Math.min(...values), most = Math.max(...values);
  const log = least > 0 && most / least > 50;
  const form = log ? Math.log10 : (v) => v;
  const low = log ? Math.floor(form(least)) : Math.min(0, least), high = log ? Math.ceil(form(most)) : most * 1.05 || 1;
  const x = scale(points[0][0], points.at(-1)[0], box.left, box.right), y = scale(low, high, box.bottom, box.top);
  const rows = log ? ticks(low, high, 5).filter(Number.isInteger) : ticks(low, high, 5);
  axes(root, box, ticks(points[0][0], points.at(-1)[0], width / 90).filter(Number.isInteger), x, showCount, rows, y, (v) => (log ? digits(10 ** v, 1) : digits(v, 3)));
  root.append(svg("path", { class: "line", stroke: "var(--c2)", d: path(points.map(([a, b]) => [x(a), y(form(b))])) }),
    svg("text", { x: (box.left + box.right) / 2, y: height - 4, "text-anchor": "middle" }, log ? "round (logarithmic scale upwards)" : "round"));
  scrub(root, box, points.length, (at, clientX, clientY) => {
    if (at !== null) showTip(clientX, clientY, `round ${showCount(points[at][0])}`, [["spread", digits(points[at][1], 4)]]);
  });
  return place.replaceChildren(root);
}

// Small multiples: one panel per group, thin lines its clients, the thick line their mean.
function drawLabelCurves(place, note, names) {
  const groups = note.group || note.shares.map(() => 0);
  const sizes = new Map();
  for (const group of groups) sizes.set(group, (sizes.get(group) || 0) + 1);
  const shown = [...sizes.keys()].sort((a, b) => sizes.get(b) - sizes.get(a)).slice(0, 12).sort((a, b) => a - b);
  const most = Math.max(...note.shares.flat().filter(isNumber));
  const grid = html("div", { class: "multiples" });
  place.replaceChildren(grid);
  for (const group of shown) {
    const panel = html("figure");
    grid.append(panel);
    const members = note.shares.filter((_, at) => groups[at] === group);
    const { width, height, root } = canvas(panel, 130, `Label shares of cluster ${group}`);
    const box = { left: 34, right: width - 6, top: 6, bottom: height - 20 };
    const labels = members[0].length;
    const x = scale(0, Math.max(1, labels - 1), box.left, box.right), y = scale(0, most, box.bottom, box.top);
    axes(root, box, ticks(0, labels - 1, 5).filter(Number.isInteger), x, (v) => shortened(String(names[v] ?? v), 9), ticks(0, most, 2), y, (v) => `${Math.round(100 * v)}%`);
    for (const shares of members.slice(0, 60)) root.append(svg("path", { class: "thin", stroke: colourOfGroup(group), d: path(shares.map((s, at) => [x(at), y(s)])) }));
    const mean = members[0].map((_, at) => members.reduce((sum, shares) => sum + shares[at], 0) / members.length);
    root.append(svg("path", { class: "line", stroke: colourOfGroup(group), d: path(mean.map((s, at) => [x(at), y(s)])) }));
    panel.append(caption("", `${group < 0 ? "no cluster" : `cluster ${group}`}, ${sizes.get(group)} curves`), root);
  }
  if (shown.length < sizes.size) place.append(html("p", { class: "hint" }, `The ${shown.length} largest of ${sizes.size} clusters are drawn.`));
}
