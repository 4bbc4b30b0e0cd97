// The timeline: a canvas that draws only the rows and the stretch of the run that are in sight.
const ROW = 22, AXIS = 20, NAMES = 230;
const GLYPHS = { made: "○", saved: "▲", aliased: "◆", written: "■", needed: "▼", freed: "×" };

function makeTimeline(raw) {
  const box = byId("timeline"), canvas = byId("canvas"), ink = canvas.getContext("2d");
  const root = laneTree(raw);
  const ends = raw.lanes.filter((lane) => lane.moments.length).map((lane) => [lane.moments[0][AT], lane.moments.at(-1)[AT]]);
  const first = ends.reduce((least, [from]) => Math.min(least, from), Infinity);
  const last = ends.reduce((most, [, to]) => Math.max(most, to), -Infinity);
  const whole = { from: first - (last - first) * 0.02 - 0.5, to: last + (last - first) * 0.02 + 0.5 };
  let view = { ...whole }, rows = [], wanted = 0, colors = {}, width = 0, height = 0, waiting = false;
  let chosen = null;

  const x = (at) => NAMES + ((at - view.from) / (view.to - view.from)) * (width - NAMES);
  const at = (px) => view.from + ((px - NAMES) / (width - NAMES)) * (view.to - view.from);

  function readColors() {
    const probe = make("span", {});
    document.body.append(probe);
    for (const name of ["ink", "faint", "line", "panel", "paper", "error", "accent", "chosen", ...raw.kinds]) {
      probe.style.color = `var(--${name})`;
      colors[name] = getComputedStyle(probe).color;
    }
    probe.remove();
  }

  function draw() {
    waiting = false;
    const ratio = window.devicePixelRatio || 1;
    ink.setTransform(ratio, 0, 0, ratio, 0, 0);
    ink.clearRect(0, 0, width, height);
    ink.font = "12px ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace";
    ink.textBaseline = "middle";
    const top = Math.max(0, Math.floor((box.scrollTop - AXIS) / ROW));
    for (let index = top; index < rows.length; index += 1) {
      const y = AXIS + index * ROW - box.scrollTop;
      if (y > height) break;
      drawRow(rows[index], y);
    }
    drawAxis();
  }

  function later() {
    if (!waiting) requestAnimationFrame(draw);
    waiting = true;
  }

  function drawAxis() {
    ink.fillStyle = colors.panel;
    ink.fillRect(0, 0, width, AXIS);
    ink.fillStyle = colors.faint;
    ink.fillText(`${wanted.toLocaleString("en")} ${wanted === 1 ? "memory" : "memories"}`, 8, AXIS / 2);
    const span = view.to - view.from;
    const unit = 10 ** Math.floor(Math.log10(span / 4));
    const tick = Math.max(1, unit * ([1, 2, 5].find((n) => span / (n * unit) < 9) || 10));
    for (let value = Math.ceil(view.from / tick) * tick; value <= view.to; value += tick) {
      if (value < first || value > last) continue;
      ink.fillStyle = colors.line;
      ink.fillRect(x(value), AXIS - 4, 1, 4);
      ink.fillStyle = colors.faint;
      if (x(value) >= NAMES) ink.fillText(Math.abs(Math.round(value)).toLocaleString("en"), x(value) + 3, AXIS / 2);
    }
  }

  function drawRow(row, y) {
    const middle = y + ROW / 2;
    ink.save();
    ink.beginPath();
    ink.rect(NAMES, y, width - NAMES, ROW);
    ink.clip();
    if (row.lane) drawLane(row.lane, middle);
    else if (!row.node.open) drawFolded(row.node, middle);
    ink.restore();
    ink.fillStyle = colors.line;
    ink.fillRect(0, y + ROW - 1, width, 1);
    drawName(row, middle);
  }

  function drawName(row, middle) {
    const indent = 8 + Math.min(row.depth, 8) * 12;
    ink.save();
    ink.beginPath();
    ink.rect(0, middle - ROW / 2, NAMES - 4, ROW);
    ink.clip();
    if (row.lane) {
      ink.fillStyle = row.lane.findings.size ? colors.error : colors.ink;
      ink.fillText(row.lane.name, indent + 12, middle);
    } else {
      ink.fillStyle = colors.faint;
      ink.fillText(`${row.node.open ? "▾" : "▸"} ${row.node.name}  ${row.count}`, indent, middle);
    }
    ink.restore();
  }

  function drawFolded(node, middle) {
    const { counts, findings, most } = density(node, first, last);
    const scale = (last - first) / (BINS - 1);
    ink.globalAlpha = 0.45;
    for (let bin = 0; bin < BINS; bin += 1) {
      if (!counts[bin]) continue;
      const left = x(first + (bin - 0.5) * scale);
      const size = 3 + (ROW - 8) * (counts[bin] / most);
      ink.fillStyle = findings[bin] ? colors.error : colors.faint;
      ink.fillRect(left, middle - size / 2, Math.max(1, x(first + (bin + 0.5) * scale) - left), size);
    }
    ink.globalAlpha = 1;
  }

  function drawLane(lane, middle) {
    const moments = lane.moments;
    if (!moments.length) return;
    ink.fillStyle = colors.line;
    ink.fillRect(x(moments[0][AT]), middle - 0.5, x(moments.at(-1)[AT]) - x(moments[0][AT]), 1.5);
    for (const [from, to, finding] of holds(lane, raw.kinds)) {
      if (to < view.from || from > view.to) continue;
      ink.globalAlpha = 0.3;
      ink.fillStyle = finding >= 0 ? colors.error : colors.saved;
      ink.fillRect(x(from), middle - 4, Math.max(1, x(to) - x(from)), 8);
      ink.globalAlpha = 1;
    }
    drawMoments(lane, middle);
  }

  function drawMoments(lane, middle) {
    let lastPixel = -1, lastKind = -1, labelEnd = -1;
    for (let index = firstAt(lane.moments, view.from); index < lane.moments.length; index += 1) {
      const moment = lane.moments[index];
      if (moment[AT] > view.to) break;
      const px = Math.round(x(moment[AT]));
      const kind = raw.kinds[moment[KIND]];
      const picked = chosen && chosen.lane === lane && chosen.index === index;
      if (px === lastPixel && moment[KIND] === lastKind && moment[FINDING] < 0 && !picked) continue;
      [lastPixel, lastKind] = [px, moment[KIND]];
      ink.fillStyle = moment[FINDING] >= 0 ? colors.error : colors[kind];
      ink.textAlign = "center";
      ink.fillText(GLYPHS[kind], px, middle);
      ink.textAlign = "left";
      if (picked || (moment[FINDING] >= 0 && moment[FINDING] === state.finding)) ring(px, middle, picked);
      const next = lane.moments[index + 1];
      const text = (kind === "written" || kind === "made") && moment[VERSION] >= 0 ? `v${moment[VERSION]}` : "";
      if (text && px > labelEnd && (!next || x(next[AT]) - px > 38)) {
        ink.fillStyle = colors.faint;
        ink.fillText(text, px + 9, middle);
        labelEnd = px + 34;
      }
    }
  }

  function ring(px, middle, picked) {
    ink.strokeStyle = picked ? colors.accent : colors.error;
    ink.lineWidth = 1.5;
    ink.beginPath();
    ink.arc(px, middle, 8, 0, 2 * Math.PI);
    ink.stroke();
  }

  function resize() {
    const ratio = window.devicePixelRatio || 1;
    [width, height] = [box.clientWidth, box.clientHeight];
    [canvas.width, canvas.height] = [width * ratio, height * ratio];
    [canvas.style.width, canvas.style.height] = [`${width}px`, `${height}px`];
    byId("rows").style.height = `${Math.max(0, AXIS + rows.length * ROW - height)}px`;
    later();
  }

  function refresh() {
    rows = laneRows(root);
    wanted = raw.lanes.filter(laneWanted).length;
    // A short timeline leaves its room to the source; 120 is for the tabs, the tools and the line below.
    document.querySelector("main").style.setProperty("--below", `${AXIS + Math.max(5, rows.length) * ROW + 120}px`);
    resize();
  }

  function clampView(from, to) {
    const least = 2, most = whole.to - whole.from;
    const size = Math.min(most, Math.max(least, to - from));
    const start = Math.max(whole.from, Math.min(whole.to - size, (from + to - size) / 2));
    view = { from: start, to: start + size };
    later();
  }

  function zoom(factor, around = (view.from + view.to) / 2) {
    clampView(around - (around - view.from) * factor, around + (view.to - around) * factor);
  }

  function rowAt(y) {
    return y < AXIS ? undefined : rows[Math.floor((y - AXIS + box.scrollTop) / ROW)];
  }

  function momentAt(lane, px) {
    const near = firstAt(lane.moments, at(px));
    const distance = (index) => Math.abs(x(lane.moments[index][AT]) - px);
    const nearest = [near - 1, near].filter((i) => lane.moments[i]).sort((a, b) => distance(a) - distance(b))[0];
    return nearest !== undefined && distance(nearest) <= 8 ? nearest : -1;
  }

  function describe(lane, index) {
    const moment = lane.moments[index];
    const place = raw.places[moment[PLACE]];
    const where = place ? ` at ${raw.paths[place[0]]}:${place[1]}` : "";
    const finding = data.findings[moment[FINDING]];
    const label = raw.labels[moment[LABEL]] || raw.kinds[moment[KIND]];
    const about = lane.detail ? ` (${lane.detail}${lane.size_bytes ? `, ${bytes(lane.size_bytes)}` : ""})` : "";
    const wrong = finding ? `\n${finding.code}: ${finding.message}` : "";
    return `${lane.name}${about}: ${raw.kinds[moment[KIND]]}${moment[VERSION] >= 0 ? `, version ${moment[VERSION]}` : ""}\n${label}${where}${wrong}`;
  }

  function select(lane, index) {
    chosen = { lane, index };
    byId("moment").textContent = describe(lane, index).replaceAll("\n", "  ·  ");
    const moment = lane.moments[index][AT];
    if (moment < view.from || moment > view.to) clampView(moment - (view.to - view.from) / 2, moment + (view.to - view.from) / 2);
    scrollTo(lane);
    later();
  }

  function scrollTo(lane) {
    const y = AXIS + rows.findIndex((row) => row.lane === lane) * ROW;
    if (y - AXIS < box.scrollTop || y + ROW > box.scrollTop + height) box.scrollTop = Math.max(0, y - height / 2);
  }

  function open(lane, index) {
    const moment = lane.moments[index];
    if (data.findings[moment[FINDING]] && moment[FINDING] !== state.finding) return choose(moment[FINDING]);
    const place = raw.places[moment[PLACE]];
    const role = { saved: "saved", written: "mutated", needed: "needed", aliased: "aliased" }[raw.kinds[moment[KIND]]] || "origin";
    if (place) showPlace(`${lane.name}: ${raw.labels[moment[LABEL]]}`, [raw.paths[place[0]], ...place.slice(1)], role, raw.labels[moment[LABEL]]);
    return undefined;
  }

  function follow(finding) {
    const lanes = raw.lanes.filter((lane) => lane.findings.has(finding));
    if (state.onlyFinding || lanes.length) {
      lanes.slice(0, 50).forEach(reveal);
      refresh();
    }
    if (!lanes.length) return;
    const times = lanes.flatMap((lane) => lane.moments.filter((m) => m[FINDING] === finding).map((m) => m[AT]));
    const from = times.reduce((a, b) => Math.min(a, b)), to = times.reduce((a, b) => Math.max(a, b));
    const room = Math.max(2, (to - from) * 0.35);
    clampView(from - room, to + room);
    scrollTo(lanes[0]);
  }

  function fold(open) {
    everyModule(root, (node) => (node.open = open));
    refresh();
  }

  function toggle(node) {
    node.open = !node.open;
    refresh();
  }

  readColors();
  if (raw.lanes.length > 300) {
    everyModule(root, (node) => (node.open = false));
    raw.lanes.filter((lane) => lane.findings.size).slice(0, 50).forEach(reveal);
  }
  refresh();
  new ResizeObserver(resize).observe(box);
  box.addEventListener("scroll", later);
  return {
    refresh, follow, zoom, fold, toggle, select, open, rowAt, momentAt, describe, at, resize,
    box, canvas,
    get rows() { return rows; },
    get chosen() { return chosen; },
    get view() { return view; },
    all: () => clampView(whole.from, whole.to),
    pan: (pixels) => {
      const by = (pixels / Math.max(1, width - NAMES)) * (view.to - view.from);
      clampView(view.from + by, view.to + by);
    },
    recolor: () => {
      readColors();
      later();
    },
  };
}
