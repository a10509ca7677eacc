// The graph of links: one circle of nodes, or a circle of small circles when there are groups; width is load.

function drawGraph(place, note, names) {
  const { nodes } = note;
  const edges = together(note.edges);
  const { width, height, root } = canvas(place, Math.max(340, Math.min(640, (place.clientWidth || 900) * 0.62)), "Graph of the links between nodes");
  const at = positions(nodes, width, height);
  const most = Math.max(...edges.map((edge) => edge.load), 1e-9);
  const own = new Set(nodes.map((node) => node.group)).size === nodes.length; // every node a group: no colours then
  const groupOf = (node) => (own ? 0 : node.group ?? -1);
  const group = new Map(nodes.map((node) => [node.id, own ? -1 : groupOf(node)]));
  const widest = Math.max(0.8, Math.min(5, 5 * Math.sqrt(60 / edges.length)));
  for (const edge of [...edges].sort((a, b) => a.load - b.load)) {
    const from = at.get(edge.from), to = at.get(edge.to);
    if (!from || !to || edge.from === edge.to) continue;
    const share = edge.load / most;
    const inside = group.get(edge.from) === group.get(edge.to) && group.get(edge.from) >= 0;
    const bend = inside || own ? 0 : 0.14;
    const middle = [(from[0] + to[0]) / 2 * (1 - bend) + (width / 2) * bend, (from[1] + to[1]) / 2 * (1 - bend) + (height / 2) * bend];
    root.append(svg("path", { d: `M${from}Q${middle} ${to}`, fill: "none", stroke: inside ? colourOfGroup(group.get(edge.from)) : "var(--ink)", "stroke-width": (0.5 + widest * share).toFixed(2), opacity: ((0.25 + 0.35 * share) * Math.min(1, 0.35 + widest / 8)).toFixed(2), "stroke-linecap": "round",
      onpointermove: (event) => showTip(event.clientX, event.clientY, `${names[edge.from] ?? edge.from} ${edge.both ? "↔" : "→"} ${names[edge.to] ?? edge.to}`, [["load", showCount(edge.load)]]), onpointerleave: hideTip }));
  }
  const radius = nodes.length > 150 ? 3 : nodes.length > 60 ? 5 : 8;
  for (const node of nodes) {
    const [x, y] = at.get(node.id);
    root.append(svg("circle", { cx: x, cy: y, r: node.head ? radius * 1.5 : radius, fill: colourOfGroup(groupOf(node)), stroke: node.head ? "var(--ink)" : "var(--paper)", "stroke-width": node.head ? 2 : 1.2,
      onpointermove: (event) => showTip(event.clientX, event.clientY, names[node.id] ?? `node ${node.id}`, [...(node.head ? [["speaks for its group", ""]] : []), ...(isNumber(node.group) && !own ? [["cluster", String(node.group), colourOfGroup(node.group)]] : [])]), onpointerleave: hideTip }));
    if (nodes.length <= 24) root.append(svg("text", { x, y: y + 4, "text-anchor": "middle", style: "fill:var(--paper);font-weight:600;font-size:10px;pointer-events:none" }, String(node.id)));
  }
  const heads = nodes.some((node) => node.head) ? "Outlined nodes speak for their cluster. " : "";
  place.replaceChildren(root, groupKeys(nodes.map(groupOf)), html("p", { class: "hint" }, `${heads}The thicker a link, the more it carried.`));
}

// The two directions of a link as one line that carries both loads.
function together(edges) {
  const found = new Map();
  for (const { from, to, load = 1 } of edges) {
    const back = found.get(`${to}/${from}`);
    if (back) { back.load += load; back.both = true; } else {
      const same = found.get(`${from}/${to}`);
      if (same) same.load += load; else found.set(`${from}/${to}`, { from, to, load, both: false });
    }
  }
  return [...found.values()];
}

function positions(nodes, width, height) {
  const centre = [width / 2, height / 2], reach = Math.min(width, height) / 2 - 14;
  const turn = (place, count, middle, radius, start) => {
    const angle = start + (2 * Math.PI * place) / count;
    return [middle[0] + radius * Math.cos(angle), middle[1] + radius * Math.sin(angle)];
  };
  const groups = [...new Set(nodes.map((node) => node.group ?? -1))];
  const found = new Map();
  if (groups.length < 2 || groups.length > nodes.length / 2) {
    nodes.forEach((node, place) => found.set(node.id, turn(place, nodes.length, centre, reach, -Math.PI / 2)));
    return found;
  }
  const small = Math.min(reach * 0.42, (reach * 0.9 * Math.PI) / groups.length * 0.72);
  groups.forEach((group, at) => {
    const start = -Math.PI / 2 + (2 * Math.PI * at) / groups.length;
    const middle = turn(at, groups.length, centre, reach - small, -Math.PI / 2);
    const members = nodes.filter((node) => (node.group ?? -1) === group);
    members.sort((a, b) => Boolean(b.head) - Boolean(a.head));
    members.forEach((node, place) => found.set(node.id, members.length === 1 ? middle : turn(place, members.length, middle, small * 0.86, start + Math.PI)));
  });
  return found;
}
