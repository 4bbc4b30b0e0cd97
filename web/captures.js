// For `verify`: methods × variants, and the module tree with where eager and capture part.
const GOOD = new Set(["faithful", "same", "equal", "agrees", "ok", "yes"]);
const BAD = new Set(["unfaithful", "differs", "wrong", "error", "fails", "refuses", "no"]);

function verdict(text) {
  const word = text.split(/[\s:,(]/)[0].toLowerCase();
  if (GOOD.has(word)) return "good";
  return BAD.has(word) ? "bad" : "unknown";
}

function captureTable(captures) {
  const variants = [...new Set(captures.flatMap((capture) => Object.keys(capture.checks || {})))];
  const artifacts = captures.some((capture) => capture.artifact);
  const head = ["method", "outcome", ...variants, "why", ...(artifacts ? ["artifact"] : [])];
  const row = (capture) => [
    make("th", {}, capture.method),
    make("td", { class: verdict(capture.outcome) }, capture.outcome, capture.tried ? ` (${plural(capture.tried, "variant")})` : ""),
    ...variants.map((variant) => {
      const result = (capture.checks || {})[variant] || "–";
      return make("td", { class: verdict(result) }, result);
    }),
    make("td", {}, captureLink(capture.finding), capture.reason || "", counterexample(capture)),
    artifacts ? make("td", {}, capture.artifact || "") : null,
  ];
  return make(
    "table",
    {},
    make("thead", {}, make("tr", {}, ...head.map((text) => make("th", {}, text)))),
    make("tbody", {}, ...captures.map((capture) => make("tr", {}, ...row(capture)))),
  );
}

function captureLink(index) {
  const finding = data.findings[index];
  return finding ? make("button", { type: "button", onclick: () => choose(index) }, finding.code) : null;
}

// A counterexample is an input in words, or a whole program that shows the difference.
function counterexample(capture) {
  const text = capture.counterexample;
  if (!text || !text.includes("\n")) return text ? make("div", {}, make("code", {}, text)) : null;
  return make("details", {}, make("summary", {}, "a program that shows it"), make("pre", {}, text));
}

// `modules`: [{path, type, verdict, detail}] in the order in which they ran.
function moduleTree(modules) {
  const root = { children: new Map() };
  for (const module of modules) {
    let node = root;
    for (const name of module.path ? module.path.split(".") : ["(model)"]) {
      if (!node.children.has(name)) node.children.set(name, { children: new Map() });
      node = node.children.get(name);
    }
    node.module = module;
  }
  const list = (node) =>
    make(
      "ul",
      { class: "tree" },
      ...[...node.children].map(([name, child]) => {
        const module = child.module || { type: "", verdict: "", detail: "" };
        const text = `${name}${module.type ? `: ${module.type}` : ""}${module.detail ? `  ${module.detail}` : ""}`;
        return make("li", { class: module.verdict }, make("span", {}, text), child.children.size ? list(child) : null);
      }),
    );
  return list(root);
}

function drawCaptures(panel) {
  const modules = data.summary.modules || [];
  const { best, code } = data.summary;
  panel.replaceChildren(
    best ? make("p", {}, make("b", {}, "Best: "), String(best), code ? make("pre", {}, String(code)) : null) : "",
    data.captures.length ? captureTable(data.captures) : "",
    modules.length ? make("h3", {}, "Where eager and capture part") : "",
    modules.length ? moduleTree(modules) : "",
  );
}
