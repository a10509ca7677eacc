// The main chart: one metric against rounds, seconds, bytes or messages; lines to switch, a target to try.

// The lines to draw: one per run, or for a single run its groups or its clients' spread.
function linesOf(data, state) {
  const about = data.runs.map((run, place) => ({ run, place, curve: run.curves[state.metric] }));
  const present = about.filter(({ curve }) => curve);
  if (data.runs.length > 1 || data.seeds || !present.length) {
    return present.map(({ run, place, curve }) => ({
      name: run.label, hue: colour(run.hue ?? place), dash: dash(place), values: curve.all, clock: run.clock, ...curve.seeds }));
  }
  const { run, curve } = present[0];
  const all = { name: "all clients", hue: "var(--c0)", values: curve.all, clock: run.clock };
  if (state.show === "groups" && Object.keys(curve.groups).length) {
    const groups = Object.entries(curve.groups).map(([group, values]) => ({
      name: `cluster ${group}`, hue: colourOfGroup(Number(group)), dash: dash(Number(group)), values, clock: run.clock }));
    return [{ ...all, name: "all", hue: "var(--ink)", dash: "3 4" }, ...groups];
  }
  return [curve.low ? { ...all, low: curve.low, high: curve.high } : { ...all, name: run.label }];
}

const pointsOf = (line, axis, values = line.values) =>
  line.clock[axis].map((at, place) => [at, values[place]]).filter(([, value]) => isNumber(value));

function bestOf(points, higher) {
  return points.reduce((best, point) => (higher ? point[1] > best[1] : point[1] < best[1]) ? point : best, points[0]);
}

function drawCurves(place, data, state) {
  const about = data.metrics[state.metric];
  const lines = linesOf(data, state).map((line) => ({ ...line, points: pointsOf(line, state.x) }));
  const shown = lines.filter((line) => !state.hide.has(line.name) && line.points.length);
  const { width, height, root } = canvas(place, Math.round(Math.min(440, Math.max(280, innerWidth * 0.42))), `${about.title} against ${AXES[state.x].word.toLowerCase()}`);
  const labels = shown.length > 1 && shown.length <= 8 && width > 640;
  const box = { left: 56, right: width - (labels ? 120 : 16), top: 28, bottom: height - 44 };
  const values = shown.flatMap((line) => [...line.points.map((p) => p[1]), ...(line.low || []), ...(line.high || []), ...(line.runs || []).flat()]).filter(isNumber);
  if (!values.length) return place.replaceChildren(html("p", { class: "hint" }, "Nothing to draw: every line is switched off."));
  const target = state.target;
  const reachable = isNumber(target) && state.metric === state.targetMetric;
  const low = Math.min(...values, reachable ? target : Infinity);
  const high = Math.max(...values, reachable ? target : -Infinity);
  const pad = (high - low || 0.1) * 0.06;
  const bounds = about.share ? [Math.max(0, low - pad), Math.min(1, high + pad)] : [low - pad, high + pad];
  const most = Math.max(...shown.map((line) => line.points.at(-1)[0]));
  const least = Math.min(...shown.map((line) => line.points[0][0]));
  const x = scale(least, most, box.left, box.right);
  const y = scale(bounds[0], bounds[1], box.bottom, box.top);
  const axis = AXES[state.x];
  axes(root, box, ticks(least, most, Math.max(3, Math.floor(width / 130)), axis.steps).filter((v) => !axis.whole || Number.isInteger(v)), x, axis.tick,
    ticks(bounds[0], bounds[1], 6), y, (v) => (about.share ? `${digits(100 * v, 4)}%` : digits(v, 4)));
  root.append(svg("text", { x: 0, y: 12 }, about.title),
    svg("text", { x: box.right, y: height - 6, "text-anchor": "end" }, axis.title));
  if (reachable) {
    root.append(svg("line", { class: "end", x1: box.left, x2: box.right, y1: y(target), y2: y(target) }),
      svg("text", { class: "halo", x: box.left + 4, y: y(target) - 5 }, `target ${showTarget(about, target)}`));
  }
  for (const line of shown) {
    if (line.low) {
      const upper = pointsOf(line, state.x, line.high).map(([a, b]) => [x(a), y(b)]);
      const lower = pointsOf(line, state.x, line.low).map(([a, b]) => [x(a), y(b)]).reverse();
      root.append(svg("path", { d: `${path([...upper, ...lower])}Z`, fill: line.hue, opacity: 0.16 }));
    }
    for (const run of line.runs || []) {
      const points = pointsOf(line, state.x, run).map(([a, b]) => [x(a), y(b)]);
      root.append(svg("path", { class: "line single", d: path(points), stroke: line.hue }));
    }
    root.append(svg("path", { class: "line", d: path(line.points.map(([a, b]) => [x(a), y(b)])), stroke: line.hue, "stroke-dasharray": line.dash }));
    const best = bestOf(line.points, about.higher);
    root.append(svg("circle", { cx: x(best[0]), cy: y(best[1]), r: 4, fill: "var(--paper)", stroke: line.hue, "stroke-width": 2 }));
  }
  if (labels) endLabels(root, shown, x, y, box);
  follow(root, shown, x, y, box, about, axis);
  place.replaceChildren(root);
}

// Names beside the ends of the lines, moved apart where they would overlap.
function endLabels(root, shown, x, y, box) {
  const ends = shown.map((line) => ({ line, at: line.points.at(-1) })).map(({ line, at }) => ({ line, left: x(at[0]) + 8, top: y(at[1]) + 4 }));
  ends.sort((a, b) => a.top - b.top);
  ends.forEach((end, place) => { if (place) end.top = Math.max(end.top, ends[place - 1].top + 15); });
  const over = ends.at(-1).top - box.bottom;
  if (over > 0) ends.forEach((end) => { end.top -= over; });
  for (const { line, left, top } of ends) {
    const name = line.name.length > 16 ? `${line.name.slice(0, 15)}…` : line.name;
    root.append(svg("text", { class: "name", x: left, y: top, style: `fill:${line.hue}` }, name));
  }
}

// Pointer and arrow keys move a cross-hair; each line reads its last value at or before it.
function follow(root, shown, x, y, box, about, axis) {
  const stops = [...new Set(shown.flatMap((line) => line.points.map((p) => p[0])))].sort((a, b) => a - b);
  const cross = svg("line", { class: "cross", y1: box.top, y2: box.bottom, visibility: "hidden" });
  const dots = shown.map((line) => svg("circle", { r: 4.5, fill: line.hue, visibility: "hidden", "pointer-events": "none" }));
  const pad = svg("rect", { x: box.left, y: box.top, width: box.right - box.left, height: box.bottom - box.top, fill: "transparent" });
  let at = stops.length - 1;
  const show = (place) => {
    at = place;
    const stop = stops[at];
    const rows = shown.map((line, place) => {
      const point = line.points.findLast((p) => p[0] <= stop);
      const visible = point ? "visible" : "hidden";
      fill(dots[place], point ? { visibility: visible, cx: x(point[0]), cy: y(point[1]) } : { visibility: visible }, []);
      const spread = line.low && point ? spreadAt(line, point, about) : "";
      return { value: point ? point[1] : null, row: [line.name, (point ? showValue(about, point[1]) : "–") + spread, line.hue] };
    });
    rows.sort((a, b) => (b.value ?? -Infinity) - (a.value ?? -Infinity));
    fill(cross, { visibility: "visible", x1: x(stop), x2: x(stop) }, []);
    const frame = root.getBoundingClientRect();
    const ratio = frame.width / root.viewBox.baseVal.width;
    showTip(frame.left + x(stop) * ratio, frame.top + ((box.top + box.bottom) / 2) * ratio, axis.show(stop), rows.map((r) => r.row));
  };
  const hide = () => { hideTip(); for (const mark of [cross, ...dots]) mark.setAttribute("visibility", "hidden"); };
  pad.addEventListener("pointermove", (event) => {
    const frame = root.getBoundingClientRect();
    const here = ((event.clientX - frame.left) / frame.width) * root.viewBox.baseVal.width;
    show(stops.reduce((best, stop, place) => (Math.abs(x(stop) - here) < Math.abs(x(stops[best]) - here) ? place : best), 0));
  });
  walk(root, pad, stops.length, () => at, show, hide);
  root.append(cross, ...dots, pad);
}

function spreadAt(line, point, about) {
  const place = line.values.indexOf(point[1]);
  return isNumber(line.low[place]) ? ` (${showValue(about, line.low[place])} to ${showValue(about, line.high[place])})` : "";
}

function drawLegend(place, data, state, change) {
  const lines = linesOf(data, state);
  if (lines.length < 2) {
    const band = lines.length && lines[0].low;
    const words = "The line is the mean over all clients; the band holds the middle 80% of them.";
    return place.replaceChildren(band ? html("span", { class: "key" }, words) : "");
  }
  return place.replaceChildren(...lines.map((line) => html("button", {
    type: "button", "data-key": `legend/${line.name}`, "aria-pressed": String(!state.hide.has(line.name)),
    onclick: () => {
      const hide = new Set(state.hide);
      if (!hide.delete(line.name)) hide.add(line.name);
      change({ hide });
    },
  }, svg("svg", { viewBox: "0 0 22 8", "aria-hidden": true }, svg("line", { x1: 1, x2: 21, y1: 4, y2: 4, stroke: line.hue, "stroke-width": 3, "stroke-dasharray": line.dash })), line.name)));
}

// What the target took on each of the four axes, for every run.
function drawReach(place, data, state) {
  const about = data.metrics[state.metric];
  if (!isNumber(state.target) || state.metric !== state.targetMetric) return place.replaceChildren();
  const rows = data.runs.filter((run) => run.curves[state.metric]).map((run) => {
    const at = run.curves[state.metric].all.findIndex((v) => isNumber(v) && (about.higher ? v >= state.target : v <= state.target));
    const cells = at < 0 ? [html("td", { colspan: 4 }, "not reached")] : ["round", "seconds", "bytes", "messages"].map((axis) =>
      html("td", { class: "num" }, axis === "round" ? showCount(run.clock.round[at]) : AXES[axis].tick(run.clock[axis][at])));
    return html("tr", {}, html("th", { scope: "row" }, run.label), cells);
  });
  const heads = ["run", "rounds", "time", "bytes", "messages"].map((word) => html("th", { scope: "col", class: word === "run" ? null : "num" }, word));
  const words = `To reach ${showTarget(about, state.target)} ${about.title}`;
  return place.replaceChildren(html("div", { class: "scroll" }, html("table", {}, html("caption", {}, words), html("thead", {}, html("tr", {}, heads)), html("tbody", {}, rows))));
}
