// The device timeline: who worked when in one round; the strip above shows how long every round took.

function drawTimeline(place, run, state, change) {
  const { rounds, strip, of } = run.timeline;
  if (!rounds.length) return place.replaceChildren(html("p", { class: "hint" }, "No client's work was timed."));
  const wanted = state.round === null ? rounds.length - 1 : nearest(rounds.map((r) => r.round), state.round);
  const overview = html("figure"), gantt = html("figure");
  const slider = html("input", { type: "range", id: `round-${state.run}`, "data-key": "round", min: 0, max: rounds.length - 1, step: 1, value: wanted, "aria-label": "Round" });
  const word = html("output", { for: slider.id });
  const go = (to) => {
    const here = Math.max(0, Math.min(rounds.length - 1, to));
    slider.value = here;
    word.textContent = `round ${showCount(rounds[here].round)}`;
    slider.setAttribute("aria-valuetext", word.textContent);
    drawStrip(overview, rounds, strip, here, go);
    drawRound(gantt, rounds[here], run.names);
    change({ round: here === rounds.length - 1 ? null : rounds[here].round }, false);
  };
  slider.addEventListener("input", () => go(Number(slider.value)));
  const button = (text, label, step) => html("button", { type: "button", "aria-label": label, onclick: () => go(Number(slider.value) + step) }, text);
  const left = rounds.length < of ? html("p", { class: "hint" }, `${rounds.length} of ${showCount(of)} rounds are kept in this page, evenly spread.`) : null;
  place.replaceChildren(overview, html("div", { class: "controls" }, button("‹", "Round before", -1), slider, button("›", "Next round", 1), word), ...(left ? [left] : []), gantt);
  go(wanted);
}

const nearest = (values, wanted) => values.reduce((best, value, place) => (Math.abs(value - wanted) < Math.abs(values[best] - wanted) ? place : best), 0);

function drawStrip(place, rounds, strip, chosen, go) {
  const { width, height, root } = canvas(place, 84, "Seconds a round");
  const box = { left: 64, right: width - 12, top: 8, bottom: height - 18 };
  const most = Math.max(...strip.seconds, 1e-9), n = rounds.length, step = (box.right - box.left) / n;
  const y = scale(0, most, box.bottom, box.top);
  for (const value of ticks(0, most, 2)) {
    root.append(svg("line", { class: "grid", x1: box.left, x2: box.right, y1: y(value), y2: y(value) }),
      svg("text", { x: box.left - 8, y: y(value) + 4, "text-anchor": "end" }, showSeconds(value)));
  }
  strip.seconds.forEach((value, at) => {
    const size = { x: box.left + at * step, width: Math.max(0.8, step - (step > 4 ? 1 : 0)), opacity: at === chosen ? 1 : 0.5 };
    const tall = Math.max(0.5, box.bottom - y(value));
    const share = Math.min(1, strip.missed[at] / rounds[at].of);
    const missed = share ? Math.max(2, tall * share) : 0;
    root.append(svg("rect", { ...size, y: box.bottom - tall, height: tall, fill: "var(--c0)" }));
    if (missed) root.append(svg("rect", { ...size, y: box.bottom - missed, height: missed, fill: "var(--alarm)", opacity: 1 }));
  });
  const here = box.left + (chosen + 0.5) * step;
  root.append(svg("path", { d: `M${here - 5} ${height - 8}h10l-5 -7z`, fill: "var(--ink)" }));
  const { pad, placeOf } = scrub(root, box, n, (at, clientX, clientY) => {
    if (at === null) return;
    showTip(clientX, clientY, `round ${showCount(rounds[at].round)}`, [["took", showSeconds(strip.seconds[at])], ["clients", showCount(rounds[at].of)], ["replies missed", showCount(strip.missed[at])]]);
  });
  pad.style.cursor = "pointer";
  pad.addEventListener("click", (event) => go(placeOf(event)));
  place.replaceChildren(caption("How long every round took", "Red is the share of replies that was lost or refused. Click a round, or use the slider, to see its clients."), root);
}

function drawRound(place, round, names) {
  const n = round.client.length;
  const bar = Math.max(3, Math.min(18, 520 / n));
  const gap = bar > 6 ? 3 : 0.6;
  const { width, height, root } = canvas(place, n * (bar + gap) + 46, `Clients that train in round ${round.round}`);
  const box = { left: 88, right: width - 16, top: 4, bottom: height - 40 };
  const most = Math.max(round.end, ...round.start.map((s, at) => s + round.busy[at]));
  const x = scale(0, most, box.left, box.right);
  for (const value of ticks(0, most, Math.max(3, Math.floor(width / 130)), AXES.seconds.steps)) {
    root.append(svg("line", { class: "grid", x1: x(value), x2: x(value), y1: box.top, y2: box.bottom }),
      svg("text", { x: x(value), y: box.bottom + 16, "text-anchor": "middle" }, showSeconds(value)));
  }
  round.client.forEach((client, at) => {
    const top = box.top + at * (bar + gap);
    const rows = [["began at", showSeconds(round.begin + round.start[at])], ["worked", showSeconds(round.busy[at])], ...(round.group[at] >= 0 ? [["group", String(round.group[at]), colourOfGroup(round.group[at])]] : [])];
    root.append(svg("rect", { x: x(round.start[at]), y: top, width: Math.max(1.5, x(round.start[at] + round.busy[at]) - x(round.start[at])), height: bar, rx: Math.min(3, bar / 3), fill: round.group[at] < 0 ? "var(--c0)" : colourOfGroup(round.group[at]), opacity: 0.85,
      onpointermove: (event) => showTip(event.clientX, event.clientY, clientName(names, client), rows), onpointerleave: hideTip }));
    if (bar >= 11) root.append(svg("text", { x: box.left - 8, y: top + bar / 2 + 4, "text-anchor": "end" }, shortened(clientName(names, client), 12), svg("title", {}, clientName(names, client))));
  });
  root.append(svg("line", { class: "end", x1: x(round.end), x2: x(round.end), y1: box.top, y2: box.bottom + 4 }),
    svg("text", { x: x(round.end), y: box.bottom + 32, "text-anchor": "end" }, `the round ends after ${showSeconds(round.end)}`));
  const small = n < round.of ? `The ${n} slowest of ${showCount(round.of)} clients, by their end.` : "Slowest first; seconds since the first client began.";
  place.replaceChildren(caption(`Round ${showCount(round.round)}: who worked when`, small), root);
}
