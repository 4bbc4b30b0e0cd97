// The data of the page, and the few helpers that every part uses. All text reaches the page as text nodes:
// nothing in a report is ever read as HTML.
const data = JSON.parse(document.getElementById("data").textContent);
const state = { finding: -1, query: "", codes: new Set(), onlyFinding: false };
const byId = (id) => document.getElementById(id);

function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
  return element;
}

// "rank 1", "ranks 0, 1"; empty for a run of one process.
function ranksOf(finding) {
  const ranks = finding.ranks || [];
  const names = ranks.slice(0, 8).join(", ") + (ranks.length > 8 ? ", …" : "");
  return ranks.length ? `rank${ranks.length > 1 ? "s" : ""} ${names}` : "";
}

function plural(count, word) {
  return `${count} ${word}${count === 1 ? "" : "s"}`;
}

function bytes(count) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (count >= 1000 && unit < units.length - 1) {
    count /= 1000;
    unit += 1;
  }
  return `${unit ? count.toFixed(1) : count} ${units[unit]}`;
}

function primary(finding) {
  return finding.spans.find((span) => span.primary) || finding.spans[0];
}

function matches(...texts) {
  const words = state.query.toLowerCase().split(/\s+/).filter(Boolean);
  const text = texts.join(" ").toLowerCase();
  return words.every((word) => text.includes(word));
}
