// For `run --memory`: what was kept at the peak step as an icicle of modules and lines, and the steps as bars.
function memoryTree(rows) {
  const root = { name: "all", bytes: 0, children: new Map() };
  for (const row of rows) {
    const line = row.path ? `${row.path}:${row.line}` : "(made in backward)";
    let node = root;
    node.bytes += row.bytes;
    for (const name of [...(row.module ? row.module.split(".") : ["(outside of modules)"]), `${row.what}  ${line}`]) {
      if (!node.children.has(name)) node.children.set(name, { name, bytes: 0, children: new Map(), above: node });
      node = node.children.get(name);
      node.bytes += row.bytes;
    }
    node.row = row;
  }
  return root;
}

function icicle(box, root) {
  const rowHeight = 22;
  const cells = [];
  let depth = 0;
  const place = (node, from, width, level) => {
    depth = Math.max(depth, level);
    const share = root.bytes ? ((100 * node.bytes) / root.bytes).toFixed(1) : "0";
    const cell = make(
      "button",
      {
        type: "button",
        class: node.row ? "cell leaf" : "cell",
        style: `left:${from}%;width:${width}%;top:${level * rowHeight}px`,
        title: `${node.name}\n${bytes(node.bytes)}, ${share} % of what is shown${node.row?.values > 1 ? `\n${node.row.values} values` : ""}`,
        onclick: () => icicle(box, node === root ? node.above || node : node.row ? root : node),
      },
      `${node.name}  ${bytes(node.bytes)}`,
    );
    cells.push(cell);
    let at = from;
    for (const child of [...node.children.values()].sort((a, b) => b.bytes - a.bytes)) {
      const part = node.bytes ? (width * child.bytes) / node.bytes : 0;
      if (part > 0.15) place(child, at, part, level + 1);
      at += part;
    }
  };
  place(root, 0, 100, 0);
  box.style.height = `${(depth + 1) * rowHeight}px`;
  box.replaceChildren(...cells);
}

function stepBars(steps, peak) {
  const most = Math.max(1, ...steps.map((step) => step.kept_bytes));
  return make(
    "div",
    { class: "steps", role: "img", "aria-label": `Bytes kept at each of ${plural(steps.length, "backward pass")}` },
    ...steps.map((step) =>
      make("i", {
        class: step.step === peak ? "peak" : "",
        style: `height:${Math.max(1, (100 * step.kept_bytes) / most)}%`,
        title: `backward ${step.step}: ${bytes(step.kept_bytes)} kept by ${plural(step.nodes, "node")}`,
      }),
    ),
  );
}

function drawMemory(panel) {
  const memory = data.memory;
  if (!memory) return;
  const box = make("div", { class: "icicle" });
  panel.replaceChildren(
    make("p", {}, make("b", {}, bytes(memory.kept_bytes)), ` kept for backward ${memory.peak_step} of ${memory.passes}; `,
      memory.followed
        ? `${bytes(memory.peak_bytes)} at the peak of a step (${memory.followed.in_backward ? "in" : "outside of"} backward). `
        : `${bytes(memory.peak_bytes)} in live tensors when it began. `,
      `A click goes into a module, a click on the top row comes back.`),
    box,
    make("h3", {}, "Kept at each backward pass"),
    stepBars(memory.steps, memory.peak_step),
    ...memory.growth.map((one) =>
      make("p", { class: "grows" }, `${one.holder} (${one.path}:${one.line}) grows by ${Math.round(one.nodes_per_step)} nodes and ${bytes(Math.round(one.bytes_per_step))} a step`)),
  );
  icicle(box, memoryTree(memory.kept));
}
