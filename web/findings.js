// The list of findings, and one finding in full.
function listed() {
  return data.findings
    .map((finding, index) => [finding, index])
    .filter(([finding]) => !state.codes.size || state.codes.has(finding.code))
    .filter(([finding]) =>
      matches(finding.code, finding.name, finding.message, finding.level, ranksOf(finding), ...finding.spans.map((s) => `${s.path}:${s.line} ${s.label}`)),
    );
}

const PAGE = 500;

function drawFindings() {
  const rows = listed();
  const list = byId("findings");
  const shown = rows.slice(0, PAGE).map(([finding, index]) => {
    const at = primary(finding);
    return make(
      "div",
      { class: "finding", role: "option", id: `finding-${index}`, "aria-selected": String(index === state.finding), onclick: () => choose(index) },
      make("span", { class: `code ${finding.level}` }, finding.code),
      finding.count > 1 ? make("span", { class: "chip" }, `× ${finding.count}`) : null,
      ranksOf(finding) ? make("span", { class: "chip ranks" }, ranksOf(finding)) : null,
      finding.certainty === "possible" ? make("span", { class: "chip" }, "possible") : null,
      make("div", {}, finding.message),
      make("div", { class: "where", title: at.path }, `${at.path.replace(INSTALLED, "")}:${at.line}`),
    );
  });
  if (!rows.length) {
    shown.push(make("div", { class: "empty" }, data.findings.length ? "No finding matches." : "Nothing found."));
  }
  if (rows.length > PAGE) shown.push(make("div", { class: "empty" }, `${rows.length - PAGE} more; search to narrow them down.`));
  list.replaceChildren(...shown);
  list.setAttribute("aria-activedescendant", state.finding >= 0 ? `finding-${state.finding}` : "");
}

function drawCodes() {
  const counts = new Map();
  for (const finding of data.findings) counts.set(finding.code, (counts.get(finding.code) || 0) + 1);
  if (counts.size < 2) return;
  const toggle = (code) => {
    if (!state.codes.delete(code)) state.codes.add(code);
    drawCodes();
    drawFindings();
  };
  byId("codes").replaceChildren(
    ...[...counts].sort().map(([code, count]) =>
      make("button", { type: "button", "aria-pressed": String(state.codes.has(code)), onclick: () => toggle(code) }, `${code} ${count}`),
    ),
  );
}

function said(what, text) {
  return make("p", { class: "said-why" }, make("b", {}, `${what}:`), " ", text);
}

function fixBlock(fix) {
  if (fix.applicability === "unsafe" && !fix.diff) return said("help", fix.title);
  const proof = (fix.proof || {}).summary;
  const cost = fix.cost_bytes > 0 ? make("span", { class: "chip" }, `+${bytes(fix.cost_bytes)}`) : null;
  return make(
    "div",
    { class: "fix" },
    make("div", {}, make("b", {}, "Fix: "), make("code", {}, fix.title), make("span", { class: `chip ${fix.applicability}` }, fix.applicability), cost),
    proof ? said("proved", proof) : null,
    fix.diff ? diffBlock(fix.diff) : null,
  );
}

function fileBlocks(finding, path, around) {
  const spans = finding.spans.filter((span) => span.path === path).sort((a, b) => a.line - b.line);
  const at = spans.find((span) => span.primary) || spans[0];
  return [placeTitle(path, at.line), sourceBlock(path, spans, around)];
}

function findingBlocks(finding) {
  const paths = [...new Set([primary(finding).path, ...finding.spans.map((span) => span.path)])];
  const own = paths.filter((path) => !INSTALLED.test(path));
  const libraries = paths.filter((path) => INSTALLED.test(path));
  const notes = finding.notes.map((note) => {
    const [, what, text] = /^(why): (.*)$/s.exec(note) || [null, "note", note];
    return said(what, text);
  });
  return [
    make(
      "h2",
      {},
      make("span", { class: `code ${finding.level}` }, `${finding.level}[${finding.code}] `),
      finding.message,
      make("span", { class: "chip" }, finding.certainty),
      finding.count > 1 ? make("span", { class: "chip" }, `${finding.count} times`) : null,
      ranksOf(finding) ? make("span", { class: "chip ranks" }, ranksOf(finding)) : null,
    ),
    ...own.flatMap((path) => fileBlocks(finding, path, 3)),
    ...notes,
    ...finding.fixes.map(fixBlock),
    said("more", make("code", {}, `torchsan explain ${finding.code}`)),
    ...libraries.flatMap((path) => fileBlocks(finding, path, 1)),
  ];
}

function drawDetail() {
  const detail = byId("detail");
  const finding = data.findings[state.finding];
  if (finding) detail.replaceChildren(...findingBlocks(finding));
  else detail.replaceChildren(make("div", { class: "empty" }, data.findings.length ? "Choose a finding." : "Nothing found: no error, no warning."));
  detail.scrollTop = 0;
}

function showPlace(title, place, role, label) {
  const [path, line, column, endLine, endColumn] = place;
  const span = { line, column, end_line: endLine, end_column: endColumn, role, label, primary: true };
  byId("detail").replaceChildren(make("h2", {}, title), placeTitle(path, line), sourceBlock(path, [span], 5));
}

function choose(index) {
  state.finding = index;
  for (const row of byId("findings").children) {
    const chosen = row.id === `finding-${index}`;
    row.setAttribute("aria-selected", String(chosen));
    if (chosen) row.scrollIntoView({ block: "nearest" });
  }
  drawDetail();
  timeline?.follow(index);
}

function step(by) {
  const order = listed().slice(0, PAGE).map(([, index]) => index);
  if (!order.length) return;
  const at = order.indexOf(state.finding);
  choose(order[Math.max(0, Math.min(order.length - 1, at < 0 ? 0 : at + by))]);
}
