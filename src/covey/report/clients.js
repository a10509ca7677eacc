// The clients: how evenly they are served, what they hold and how often they worked.

// One dot per client, one row per run (or a group of a single run): the middle half as a bar, the median as a mark.
function drawSpread(place, lead, data) {
  const first = data.runs.find((run) => run.fleet.dots.value.length);
  if (!first) {
    lead.textContent = "No client was measured on its own.";
    return place.replaceChildren();
  }
  const about = data.metrics[`${first.fleet.metric}-mean`] || { share: first.fleet.metric.endsWith("accuracy"), title: first.fleet.metric };
  const rows = spreadRows(data);
  const thinned = data.runs.filter((run) => run.fleet.dots.of > run.fleet.dots.value.length);
  lead.textContent = `${first.fleet.metric.split("/")[1]} of every client on its own test data in the last measured round. Thick: the middle half; mark: the median; thin: the middle 80%.`
    + (thinned.length ? ` ${first.fleet.dots.value.length} of ${showCount(first.fleet.dots.of)} clients are drawn, evenly from worst to best.` : "");
  lead.textContent = lead.textContent[0].toUpperCase() + lead.textContent.slice(1);
  const step = rows.length === 1 ? 130 : rows.length > 8 ? 42 : 58;
  const { width, height, root } = canvas(place, rows.length * step + 40, "Distribution of the clients' own results");
  const box = { left: Math.min(170, width * 0.28), right: width - 20, top: 6, bottom: height - 30 };
  const all = rows.flatMap((row) => row.dots.map((dot) => dot.value));
  const low = Math.min(...all), high = Math.max(...all), pad = (high - low || 0.1) * 0.04;
  const x = scale(low - pad, high + pad, box.left, box.right);
  for (const value of ticks(low - pad, high + pad, Math.max(3, Math.floor(width / 130)))) {
    root.append(svg("line", { class: "grid", x1: x(value), x2: x(value), y1: box.top, y2: box.bottom }),
      svg("text", { x: x(value), y: box.bottom + 18, "text-anchor": "middle" }, about.share ? `${digits(100 * value, 4)}%` : digits(value, 4)));
  }
  rows.forEach((row, at) => spreadRow(root, row, x, box, box.top + (at + 0.5) * step, step, about));
  return place.replaceChildren(root);
}

function spreadRows(data) {
  const rowOf = (name, hue, dots) => ({ name, hue, dots });
  const dotsOf = ({ fleet: { dots }, names }) => dots.value.map((value, place) => ({ value, client: clientName(names, dots.client[place]), group: dots.group[place] }));
  if (data.runs.length > 1) {
    return data.runs.map((run, place) => ({ ...rowOf(run.label, colour(run.hue ?? place), dotsOf(run)), quantiles: run.fleet.dots.quantiles }))
      .filter((row) => row.dots.length);
  }
  const { fleet } = data.runs[0];
  const every = dotsOf(data.runs[0]);
  const all = { ...rowOf("all clients", "var(--c7)", every), quantiles: fleet.dots.quantiles };
  const groups = Object.keys(fleet.sizes);
  if (groups.length < 2 || groups.length > 12) return [{ ...all, hue: "var(--c0)" }];
  return [all, ...groups.map((group) => rowOf(`cluster ${group} (${fleet.sizes[group]})`, colourOfGroup(Number(group)), every.filter((dot) => dot.group === Number(group))))];
}

function spreadRow(root, row, x, box, middle, step, about) {
  const name = shortened(row.name, Math.min(22, Math.floor((box.left - 14) / 7)));
  root.append(svg("text", { class: "name", x: box.left - 14, y: middle + 4, "text-anchor": "end" }, name, svg("title", {}, row.name)));
  if (!row.dots.length) return;
  const sorted = row.dots.map((dot) => dot.value).sort((a, b) => a - b);
  const marks = row.quantiles || [0.1, 0.25, 0.5, 0.75, 0.9].map((share) => quantile(sorted, share));
  const below = middle + step / 2 - 14;
  root.append(
    svg("line", { x1: x(marks[0]), x2: x(marks[4]), y1: below, y2: below, stroke: row.hue, "stroke-width": 1.5 }),
    svg("line", { x1: x(marks[1]), x2: x(marks[3]), y1: below, y2: below, stroke: row.hue, "stroke-width": 6, opacity: 0.55 }),
    svg("line", { x1: x(marks[2]), x2: x(marks[2]), y1: below - 6, y2: below + 6, stroke: "var(--ink)", "stroke-width": 2 }));
  const filled = new Map();
  const piled = row.dots.map((dot) => {
    const slot = Math.round(x(dot.value) / 5);
    filled.set(slot, (filled.get(slot) || 0) + 1);
    return { dot, level: filled.get(slot) - 1 };
  });
  const lift = Math.min(4.5, (step * 0.62) / Math.max(...filled.values()));
  for (const { dot, level } of piled) {
    root.append(svg("circle", { cx: x(dot.value), cy: below - 11 - level * lift, r: 2.8, fill: row.hue, opacity: 0.75,
      onpointerenter: (event) => showTip(event.clientX, event.clientY, dot.client, [[about.title.split(",")[0], showValue(about, dot.value)], ...(dot.group >= 0 ? [["cluster", String(dot.group)]] : [])]),
      onpointerleave: hideTip }));
  }
}

// One column per client, ordered by group: its labels, how often it worked and how well it is served.
function drawFleet(place, run) {
  const f = run.fleet;
  if (!f.ids.length) return place.replaceChildren(html("p", { class: "hint" }, "Nothing was recorded about single clients."));
  const rowHeight = f.labels.length ? Math.max(3, Math.min(18, 240 / f.labels.length)) : 0;
  const heat = rowHeight * f.labels.length;
  const lanes = [];
  let top = 4;
  const lane = (name, height, gap) => { lanes.push({ name, top, bottom: top + height }); top += height + gap; };
  if (f.group) lane("group", 12, 4);
  if (f.truth) lane("truth", 12, 4);
  if (lanes.length) top += 4;
  if (heat) lane("labels", heat, 22);
  if (!lanes.length) top = 18; // room for the first lane's name
  if (f.worked.some((v) => v > 0)) lane("worked", 70, 22);
  if (f.value.some(isNumber)) lane("value", 80, 8);
  const { width, root } = canvas(place, top + 20, "Clients by label, number of rounds worked and result");
  const box = { left: Math.max(64, 16 + 6.5 * Math.min(12, Math.max(0, ...f.labels.map((label) => label.length)))), right: width - 12, top: 0, bottom: top };
  const n = f.ids.length, step = (box.right - box.left) / n;
  const left = (column) => box.left + column * step;
  const about = { share: /accuracy|precision|recall|f1|auc/.test(f.metric || "") };
  for (const { name, top: a, bottom: b } of lanes) {
    if (name === "group" || name === "truth") runsOf(f[name]).forEach(([value, from, to]) =>
      root.append(svg("rect", { x: left(from), y: a, width: Math.max(0.5, left(to) - left(from) - (step > 3 ? 1 : 0)), height: b - a, fill: colourOfGroup(value), opacity: name === "truth" ? 0.55 : 1 })));
    if (name === "group" || name === "truth") root.append(svg("text", { x: box.left - 8, y: b - 1, "text-anchor": "end" }, name === "truth" ? "true cluster" : name));
    if (name === "labels") drawHeat(root, f, box, a, rowHeight);
    if (name === "worked") drawBars(root, f, box, a, b, left, step);
    if (name === "value") drawResults(root, f, box, a, b, left, step, about);
  }
  const many = n < f.clients;
  const wide = Object.keys(run.names).length ? 76 : 60;
  if (n <= 400) for (const column of ticks(0, n - 1, Math.floor((box.right - box.left) / wide)).filter(Number.isInteger)) {
    root.append(svg("text", { x: left(column) + step / 2, y: top + 14, "text-anchor": "middle" }, shortened(run.names[f.ids[column][0]] ?? String(f.ids[column][0]), Math.max(10, Math.floor(step / 7)))));
  }
  if (n <= 400) root.append(svg("text", { x: box.left - 8, y: top + 14, "text-anchor": "end" }, many ? "first client" : "client"));
  const mark = svg("rect", { class: "hover", y: 1, height: top - 2, width: Math.max(step, 2), visibility: "hidden" });
  root.append(mark);
  scrub(root, box, n, (column, clientX, clientY) => {
    if (column === null) return mark.setAttribute("visibility", "hidden");
    fill(mark, { visibility: "visible", x: left(column) }, []);
    return showTip(clientX, clientY, clientWords(run.names, f.ids[column]), fleetRows(f, column, about));
  });
  const order = f.group ? "ordered by cluster" + (f.truth ? ", then by true cluster" : "") : f.truth ? "ordered by true cluster" : "in order of their number";
  const column = many ? `Each column stands for about ${Math.round(f.clients / n)} neighbours of ${showCount(f.clients)} clients` : f.clients === 1 ? "The column is the only client" : `Each column is one of ${showCount(f.clients)} clients`;
  place.replaceChildren(html("figure", {}, caption("What clients hold, how often they worked, how well they do", `${column}, ${order}.${workedWords(f)}`), root));
}

const clientWords = (names, ids) => (ids.length === 1 ? clientName(names, ids[0]) : `${ids[2]} clients, ${ids[0]} to ${ids[1]}`);

function workedWords(f) {
  const [least, middle, most] = f.often;
  if (!most) return "";
  const never = f.quiet ? ` ${showCount(f.quiet)} never worked.` : "";
  if (least === most) return ` Each worked in ${showCount(most)} rounds.`;
  return ` They worked in ${showCount(least)} to ${showCount(most)} rounds, median ${showCount(middle)}.${never}`;
}

function fleetRows(f, column, about) {
  const rows = [];
  if (f.group) rows.push(["cluster", String(f.group[column]), colourOfGroup(f.group[column])]);
  if (f.truth) rows.push(["true cluster", String(f.truth[column])]);
  rows.push(["rounds worked", showCount(f.worked[column])]);
  if (isNumber(f.value[column])) rows.push([f.metric.split("/")[1], showValue(about, f.value[column])]);
  const sum = f.counts[column].reduce((a, b) => a + b, 0);
  const most = f.counts[column].map((count, label) => [count, f.labels[label]]).filter(([count]) => count).sort((a, b) => b[0] - a[0]);
  for (const [count, label] of most.slice(0, 5)) rows.push([/^\d+$/.test(label) ? `label ${label}` : label, `${showCount(count)} (${Math.round((100 * count) / sum)}%)`]);
  if (most.length > 5) rows.push([`${most.length - 5} more labels`, ""]);
  return rows;
}

// Neighbours of one value: [value, from, to).
function runsOf(values) {
  const runs = [];
  values.forEach((value, place) => {
    if (runs.length && runs.at(-1)[0] === value) runs.at(-1)[2] = place + 1;
    else runs.push([value, place, place + 1]);
  });
  return runs;
}

// Shares of labels as one small picture used as a mask, so that the colours follow the theme and the printer.
function drawHeat(root, f, box, top, rowHeight) {
  const picture = document.createElement("canvas");
  picture.width = f.ids.length;
  picture.height = f.labels.length;
  const pen = picture.getContext("2d");
  const shares = f.counts.map((counts) => counts.map((count) => count / (counts.reduce((a, b) => a + b, 0) || 1)));
  const most = shares.reduce((best, column) => Math.max(best, ...column), 1e-9);
  shares.forEach((column, at) => {
    column.forEach((share, label) => {
      pen.fillStyle = `rgba(255,255,255,${((share / most) ** 0.7).toFixed(3)})`;
      pen.fillRect(at, label, 1, 1);
    });
  });
  const size = { x: box.left, y: top, width: box.right - box.left, height: rowHeight * f.labels.length };
  const id = `heat-${Math.random().toString(36).slice(2)}`;
  root.append(
    svg("mask", { id }, svg("image", { ...size, href: picture.toDataURL(), preserveAspectRatio: "none", style: "image-rendering:pixelated" })),
    svg("rect", { ...size, fill: "var(--low)" }),
    svg("rect", { ...size, fill: "var(--high)", mask: `url(#${id})` }));
  heatKey(root, box.right, top + size.height + 6, most);
  const every = Math.max(1, Math.ceil(13 / rowHeight));
  f.labels.forEach((label, place) => {
    if (place % every) return;
    root.append(svg("text", { x: box.left - 8, y: top + (place + 0.5) * rowHeight + 4, "text-anchor": "end" }, shortened(label, 12), svg("title", {}, label)));
  });
}

// What the shades of the heat map mean: from none of a client's samples to the largest share.
function heatKey(root, right, top, most) {
  for (let at = 0; at < 5; at += 1) {
    const box = { x: right - 128 + 14 * at, y: top, width: 14, height: 9 };
    root.append(svg("rect", { ...box, fill: "var(--low)" }), svg("rect", { ...box, fill: "var(--high)", opacity: (at / 4) ** 0.7 }));
  }
  root.append(svg("text", { x: right - 134, y: top + 9, "text-anchor": "end" }, `${right > 500 ? "share of a client's samples: " : ""}0%`),
    svg("text", { x: right - 52, y: top + 9 }, `${digits(100 * most, 2)}%`));
}

function drawBars(root, f, box, a, b, left, step) {
  const most = Math.max(...f.worked.filter(isNumber));
  const y = scale(0, most, b, a);
  laneAxis(root, "rounds worked", ticks(0, most, 2), y, showCount, box, a);
  const gap = step > 4 ? 1 : 0;
  f.worked.forEach((value, column) => {
    if (value) root.append(svg("rect", { x: left(column), y: y(value), width: Math.max(0.6, step - gap), height: b - y(value), fill: f.group ? colourOfGroup(f.group[column]) : "var(--c0)", opacity: 0.85 }));
  });
}

function drawResults(root, f, box, a, b, left, step, about) {
  const known = f.value.filter(isNumber);
  const low = Math.min(...known), high = Math.max(...known);
  const y = scale(low, high, b - 3, a + 3);
  laneAxis(root, f.metric.split("/")[1], ticks(low, high, 4), y, (v) => (about.share ? `${digits(100 * v, 3)}%` : digits(v, 3)), box, a);
  f.value.forEach((value, column) => {
    if (isNumber(value)) root.append(svg("circle", { cx: left(column) + step / 2, cy: y(value), r: Math.max(1.6, Math.min(3.6, step / 2)), fill: f.group ? colourOfGroup(f.group[column]) : "var(--c0)" }));
  });
}

function laneAxis(root, word, values, y, label, box, top) {
  for (const value of values) {
    root.append(svg("line", { class: "grid", x1: box.left, x2: box.right, y1: y(value), y2: y(value) }),
      svg("text", { x: box.left - 8, y: y(value) + 4, "text-anchor": "end" }, label(value)));
  }
  root.append(svg("text", { x: box.left, y: top - 6 }, word));
}
