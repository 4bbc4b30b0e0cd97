// Puts the parts together: summary, tabs, keys, theme, print.
let timeline = null;

function drawSummary() {
  const { errors, warnings, notes } = data.summary;
  const counts = [[errors, "error"], [warnings, "warning"], [notes, "note"]].filter(([count]) => count);
  const parts = counts.map(([count, word]) => make("b", { class: word }, plural(count, word)));
  const torch = data.tool.torch ? `, torch ${data.tool.torch}` : "";
  const line = [...parts];
  for (const one of data.processes || []) {
    if (["ended", "running", "stopped"].includes(one.outcome)) continue;
    line.push(make("b", { class: "error" }, `${one.rank == null ? one.role : `rank ${one.rank}`} ${one.outcome}`));
  }
  if (!parts.length) line.push("nothing found");
  line.push(`${data.command.join(" ")}  (torchsan ${data.tool.version}${torch}, Python ${data.tool.python})`);
  byId("summary").replaceChildren(...line.flatMap((part) => [part, " · "]).slice(0, -1));
  byId("summary").title = (data.summary.remarks || []).join("\n");
}

function drawTabs() {
  const panels = [];
  if (timeline) panels.push(["Timeline", byId("timeline-panel")]);
  if (data.captures.length || (data.summary.modules || []).length) panels.push(["Captures", byId("captures-panel")]);
  if (data.memory?.steps.length) panels.push(["Memory", byId("memory-panel")]);
  document.querySelector("main").classList.toggle("no-below", !panels.length);
  const show = (wanted) => {
    for (const panel of [byId("timeline-panel"), byId("captures-panel"), byId("memory-panel")]) panel.hidden = panel !== wanted;
    if (wanted === byId("timeline-panel")) timeline.refresh();
    else document.querySelector("main").style.removeProperty("--below");
    for (const button of byId("tabs").children) button.setAttribute("aria-selected", String(button.dataset.panel === wanted.id));
  };
  byId("tabs").replaceChildren(
    ...panels.map(([name, panel]) =>
      make("button", { type: "button", role: "tab", "data-panel": panel.id, onclick: () => show(panel) }, name),
    ),
  );
  if (!panels.length) byId("below").hidden = true;
  else show(data.memory ? byId("memory-panel") : data.captures.length ? byId("captures-panel") : panels[0][1]);
}

function setTheme() {
  const dark = getComputedStyle(document.documentElement).colorScheme === "dark" ||
    (document.documentElement.style.colorScheme === "" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.style.colorScheme = dark ? "light" : "dark";
  timeline?.recolor();
}

function wireTimeline() {
  const { box, canvas } = timeline;
  let drag = null;
  const tip = byId("tip");
  byId("legend").replaceChildren(
    ...Object.entries(GLYPHS).map(([kind, glyph]) => make("span", {}, make("i", { style: `color:var(--${kind})` }, glyph), kind)),
    data.timeline.dropped ? make("span", {}, `${plural(data.timeline.dropped, "event")} not kept`) : "",
  );
  canvas.addEventListener("mousemove", (event) => {
    if (drag !== null) {
      timeline.pan(drag - event.offsetX);
      drag = event.offsetX;
      return;
    }
    const row = timeline.rowAt(event.offsetY);
    const index = row?.lane && event.offsetX >= NAMES ? timeline.momentAt(row.lane, event.offsetX) : -1;
    tip.hidden = index < 0 && !(row && event.offsetX < NAMES);
    if (tip.hidden) return;
    tip.textContent = index >= 0 ? timeline.describe(row.lane, index) : row.lane ? `${row.lane.name}\n${row.lane.module}\n${row.lane.detail}` : row.node.path;
    tip.style.left = `${Math.min(event.clientX + 12, innerWidth - 330)}px`;
    tip.style.top = `${Math.max(0, event.clientY - 20 - tip.offsetHeight)}px`;
  });
  canvas.addEventListener("mouseleave", () => (tip.hidden = true));
  canvas.addEventListener("mousedown", (event) => (drag = event.offsetX));
  window.addEventListener("mouseup", () => (drag = null));
  canvas.addEventListener("click", (event) => {
    const row = timeline.rowAt(event.offsetY);
    if (!row) return;
    if (row.node) return timeline.toggle(row.node);
    const index = timeline.momentAt(row.lane, event.offsetX);
    if (index < 0) return;
    timeline.select(row.lane, index);
    timeline.open(row.lane, index);
  });
  box.addEventListener("wheel", (event) => {
    if (event.ctrlKey || event.metaKey) timeline.zoom(event.deltaY > 0 ? 1.25 : 0.8, timeline.at(event.offsetX));
    else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) timeline.pan(event.deltaX);
    else return;
    event.preventDefault();
  }, { passive: false });
  byId("zoom-in").onclick = () => timeline.zoom(0.6);
  byId("zoom-out").onclick = () => timeline.zoom(1.6);
  byId("zoom-all").onclick = timeline.all;
  byId("fold").onclick = () => timeline.fold(false);
  byId("unfold").onclick = () => timeline.fold(true);
  byId("only-finding").onchange = (event) => {
    state.onlyFinding = event.target.checked;
    timeline.refresh();
  };
  box.addEventListener("keydown", timelineKey);
}

function timelineKey(event) {
  const lanes = timeline.rows.filter((row) => row.lane?.moments.length).map((row) => row.lane);
  const { lane, index } = timeline.chosen || {};
  const at = lanes.indexOf(lane);
  const move = (to, moment) => lanes[to] && timeline.select(lanes[to], Math.max(0, Math.min(lanes[to].moments.length - 1, moment)));
  const near = (to) => lanes[to] && move(to, firstAt(lanes[to].moments, lane.moments[index][AT]));
  const keys = {
    ArrowRight: () => (at < 0 ? move(0, 0) : move(at, index + 1)),
    ArrowLeft: () => (at < 0 ? move(0, 0) : move(at, index - 1)),
    ArrowDown: () => (at < 0 ? move(0, 0) : near(at + 1)),
    ArrowUp: () => (at < 0 ? move(0, 0) : near(at - 1)),
    Enter: () => at >= 0 && timeline.open(lane, index),
    "+": () => timeline.zoom(0.6),
    "=": () => timeline.zoom(0.6),
    "-": () => timeline.zoom(1.6),
    0: timeline.all,
  };
  if (!keys[event.key] || event.ctrlKey || event.metaKey) return;
  keys[event.key]();
  event.preventDefault();
  event.stopPropagation();
}

function pageKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches("input[type=search]")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const inDetail = event.target === byId("detail");
  const keys = {
    j: () => step(1),
    k: () => step(-1),
    ArrowDown: inDetail ? null : () => step(1),
    ArrowUp: inDetail ? null : () => step(-1),
    "/": () => byId("search").focus(),
    t: setTheme,
    l: () => timeline && byId("timeline").focus(),
    "?": () => byId("help").showModal(),
  };
  if (!keys[event.key] || byId("help").open) return;
  keys[event.key]();
  event.preventDefault();
}

function drawPrint() {
  const most = 200;
  const articles = data.findings.slice(0, most).map((finding) => make("article", {}, ...findingBlocks(finding)));
  if (data.findings.length > most) articles.push(make("p", {}, `${data.findings.length - most} more findings are not printed.`));
  if (data.captures.length) articles.push(make("article", {}, captureTable(data.captures)));
  byId("print").replaceChildren(...articles);
}

function start() {
  drawSummary();
  drawCodes();
  drawFindings();
  drawCaptures(byId("captures-panel"));
  drawMemory(byId("memory-panel"));
  if (data.timeline?.lanes.length) timeline = makeTimeline(data.timeline);
  drawTabs();
  if (timeline) wireTimeline();
  if (data.findings.length) choose(0);
  else drawDetail();
  byId("search").addEventListener("input", (event) => {
    state.query = event.target.value.trim();
    drawFindings();
    timeline?.refresh();
  });
  byId("theme").onclick = setTheme;
  byId("help-button").onclick = () => byId("help").showModal();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => timeline?.recolor());
  document.addEventListener("keydown", pageKey);
  window.addEventListener("beforeprint", drawPrint);
}

start();
