// The lanes of the timeline as rows: folded by module, searched, filtered. No drawing here.
const AT = 0, KIND = 1, VERSION = 2, LABEL = 3, PLACE = 4, FINDING = 5;
const BINS = 1200;

function laneTree(raw) {
  const root = { name: "", path: "", open: true, modules: new Map(), lanes: [], parent: null };
  for (const lane of raw.lanes) {
    let node = root;
    for (const name of lane.module ? lane.module.split(".") : []) {
      if (!node.modules.has(name)) {
        const path = node.path ? `${node.path}.${name}` : name;
        node.modules.set(name, { name, path, open: true, modules: new Map(), lanes: [], parent: node });
      }
      node = node.modules.get(name);
    }
    lane.node = node;
    lane.findings = new Set(lane.moments.filter((m) => m[FINDING] >= 0).map((m) => m[FINDING]));
    node.lanes.push(lane);
  }
  return root;
}

function everyLane(node, visit) {
  node.lanes.forEach(visit);
  for (const child of node.modules.values()) everyLane(child, visit);
}

function everyModule(node, visit) {
  for (const child of node.modules.values()) {
    visit(child);
    everyModule(child, visit);
  }
}

function reveal(lane) {
  for (let node = lane.node; node; node = node.parent) node.open = true;
}

function laneWanted(lane) {
  if (state.onlyFinding && !lane.findings.has(state.finding)) return false;
  return !state.query || matches(lane.name, lane.module, lane.detail);
}

// The rows from top to bottom: {node | lane, depth, count}. A search opens what it finds.
function laneRows(root) {
  const rows = [];
  const filtered = state.onlyFinding || state.query !== "";
  const count = (node) => {
    let wanted = 0;
    everyLane(node, (lane) => (wanted += laneWanted(lane)));
    return wanted;
  };
  const visit = (node, depth) => {
    for (const lane of node.lanes) if (laneWanted(lane)) rows.push({ lane, depth });
    for (const child of node.modules.values()) {
      const lanes = count(child);
      if (!lanes) continue;
      rows.push({ node: child, depth, count: lanes });
      if (child.open || filtered) visit(child, depth + 1);
    }
  };
  visit(root, 0);
  return rows;
}

// The index of the first moment at or after `at`.
function firstAt(moments, at) {
  let low = 0, high = moments.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (moments[middle][AT] < at) low = middle + 1;
    else high = middle;
  }
  return low;
}

// From each save to the backward that needs it: [from, to, finding]. Made once per lane.
function holds(lane, kinds) {
  if (lane.holds) return lane.holds;
  // The last save of a version, and of a finding: what a finding needs may have been saved before others.
  const saved = new Map(), blamed = new Map();
  lane.holds = [];
  for (const moment of lane.moments) {
    const kind = kinds[moment[KIND]];
    if (kind === "saved") (moment[FINDING] >= 0 ? blamed : saved).set(moment[FINDING] >= 0 ? moment[FINDING] : moment[VERSION], moment);
    if (kind !== "needed") continue;
    const since = blamed.get(moment[FINDING]) || saved.get(moment[VERSION]);
    if (since) lane.holds.push([since[AT], moment[AT], moment[FINDING]]);
  }
  return lane.holds;
}

// How much happens when inside a folded module, and whether it is part of a finding. Made once per module.
function density(node, first, last) {
  if (node.density) return node.density;
  const counts = new Float32Array(BINS);
  const findings = new Uint8Array(BINS);
  const scale = (BINS - 1) / Math.max(1, last - first);
  everyLane(node, (lane) => {
    for (const moment of lane.moments) {
      const bin = Math.round((moment[AT] - first) * scale);
      counts[bin] += 1;
      if (moment[FINDING] >= 0) findings[bin] = 1;
    }
  });
  let most = 1;
  for (const value of counts) most = Math.max(most, value);
  node.density = { counts, findings, most };
  return node.density;
}
