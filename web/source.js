// Source with labelled spans, and diffs.
const WORDS =
  "and|as|assert|async|await|break|class|continue|def|del|elif|else|except|finally|for|from|global|if|import|in|is|lambda|nonlocal|not|or|pass|raise|return|try|while|with|yield|None|True|False|self";
const TOKEN = new RegExp(
  `(#.*$)|([rbfuRBFU]{0,2}(?:"""[^]*?(?:"""|$)|'''[^]*?(?:'''|$)|"(?:\\\\.|[^"\\\\])*"?|'(?:\\\\.|[^'\\\\])*'?))|\\b(${WORDS})\\b|\\b(\\d[\\w.]*)`,
  "g",
);
const TOKEN_CLASSES = ["comment", "string", "keyword", "number-literal"];

// The stretches of a line with their colour: [text, class][].
function tokens(text) {
  const found = [];
  let end = 0;
  for (const match of text.matchAll(TOKEN)) {
    if (match.index > end) found.push([text.slice(end, match.index), ""]);
    found.push([match[0], TOKEN_CLASSES[match.slice(1).findIndex((group) => group !== undefined)]]);
    end = match.index + match[0].length;
  }
  if (end < text.length) found.push([text.slice(end), ""]);
  return found;
}

// One line of code; characters inside a span are marked with its role. Columns count code points.
function codeLine(text, spans) {
  const points = [...text];
  const marks = points.map((_, index) => spans.find((span) => index >= span.from && index < span.to));
  const line = make("span", { class: "text" });
  let index = 0;
  for (const [part, kind] of tokens(text)) {
    const letters = [...part];
    while (letters.length) {
      const span = marks[index];
      let length = 1;
      while (length < letters.length && marks[index + length] === span) length += 1;
      const piece = letters.splice(0, length).join("");
      const node = kind ? make("span", { class: kind }, piece) : document.createTextNode(piece);
      line.append(span ? make("mark", { class: `role-${span.role}` }, node) : node);
      index += length;
    }
  }
  return line;
}

// Where a library is installed says nothing; its name and file do.
const INSTALLED = /^.*\/(?:site|dist)-packages\//;

function placeTitle(path, line) {
  return make("h3", { title: path }, `${path.replace(INSTALLED, "")}:${line}`);
}

function lineText(path, number) {
  for (const [start, lines] of data.sources[path] || []) {
    if (number >= start && number < start + lines.length) return lines[number - start];
  }
  return null;
}

// What part of line `number` a span covers, in columns from 0.
function covered(span, number, text) {
  const length = [...text].length;
  const from = number === span.line ? span.column - 1 : [...text].findIndex((c) => c.trim());
  const to = number === span.end_line ? span.end_column - 1 : length;
  return { role: span.role, from: Math.max(0, from), to: Math.max(to, from + 1) };
}

function shownNumbers(path, spans, around) {
  const wanted = new Set();
  for (const span of spans) {
    const last = Math.min(span.end_line, span.line + 12);
    for (let n = span.line - around; n <= last + around; n += 1) {
      if (lineText(path, n) !== null) wanted.add(n);
    }
  }
  return [...wanted].sort((a, b) => a - b);
}

function sourceBlock(path, spans, around = 3) {
  const block = make("div", { class: "source" });
  const numbers = shownNumbers(path, spans, around);
  if (!numbers.length) {
    for (const span of spans) block.append(make("div", { class: "gap" }, `line ${span.line}: ${span.label}`));
    return block;
  }
  let before = numbers[0] - 1;
  for (const number of numbers) {
    if (number > before + 1) block.append(make("div", { class: "gap" }, "⋮"));
    before = number;
    const text = lineText(path, number);
    const here = spans.filter((span) => number >= span.line && number <= span.end_line);
    const marks = here.map((span) => covered(span, number, text));
    block.append(
      make("div", { class: `row${here.length ? " marked" : ""}` }, make("span", { class: "number" }, String(number)), codeLine(text, marks)),
    );
    for (const span of here.filter((span) => span.line === number && span.label)) {
      const { from, to } = covered(span, number, text);
      const mark = (span.primary ? "^" : "‾").repeat(Math.max(1, to - from));
      block.append(
        make(
          "div",
          { class: `row label role-${span.role}` },
          make("span", { class: "number" }),
          make("span", { class: "said" }, `${" ".repeat(from)}${mark} ${span.label}`),
        ),
      );
    }
  }
  return block;
}

function diffBlock(diff) {
  const kinds = { "+": "plus", "-": "minus", "@": "hunk" };
  const block = make("div", { class: "diff" });
  for (const line of diff.split("\n")) {
    if (!line || line.startsWith("--- ") || line.startsWith("+++ ")) continue;
    block.append(make("div", { class: `row ${kinds[line[0]] || ""}` }, line));
  }
  return block;
}
