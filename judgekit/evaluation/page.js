"use strict";
// Lets readers sort and filter the tables of a page, and look at rows one by one. What others wrote is only
// ever shown as text (`textContent`), never read as markup.

const COLLATOR = new Intl.Collator(undefined, {numeric: true});
// Rows of a list that are drawn at once: first as many as a screen has, then more. Many small groups would
// make the browser slow, since it lays all of them out after each change.
const DRAWN_FIRST = 30;
const DRAWN_TOGETHER = 150;
const LINE_HEIGHT = 38; // pixels of a row that is not drawn yet, roughly
const MOST_CHOICES = 8; // of a column that gets a box to choose from
const MOST_PRINTED = 1000;
const SNIPPET = 160; // characters
const ALL = "\0"; // the choice of every value, which no value is

function make(tag, properties, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

function compare(one, other) {
  // A collator compares 4.7 and 4.67 as 7 and 67.
  const difference = Number(one) - Number(other);
  return Number.isNaN(difference) ? COLLATOR.compare(one, other) : difference;
}

// Sorting: up, down, and back to the first order.

function makeSortable(heads, sortBy) {
  for (const head of heads) {
    const button = make("button", {type: "button", className: "sort", title: "Sort"}, ...head.childNodes);
    head.append(button);
    button.onclick = () => {
      const before = head.getAttribute("aria-sort");
      const now = {ascending: "descending", descending: null}[before];
      for (const other of heads) other.removeAttribute("aria-sort");
      const direction = now === undefined ? "ascending" : now;
      if (direction) head.setAttribute("aria-sort", direction);
      sortBy(head, direction);
    };
  }
}

function sorted(items, valueOf, direction) {
  if (!direction) return items;
  const sign = direction === "ascending" ? 1 : -1;
  const keyed = items.map(item => ({item, value: valueOf(item)}));
  keyed.sort((one, other) => {
    // What has no value comes last, whichever way the rows are sorted.
    if (one.value === "" || other.value === "") return (one.value === "") - (other.value === "");
    return sign * compare(one.value, other.value);
  });
  return keyed.map(({item}) => item);
}

// The boxes above a table.

function makeSearch(label, onChange) {
  const field = make("input", {type: "search", placeholder: label, oninput: onChange});
  field.setAttribute("aria-label", label);
  return field;
}

function makeChoice(label, values, onChange) {
  const options = values.map(value => new Option(value || "(none)", value));
  const choice = make("select", {onchange: onChange}, new Option(`${label}: all`, ALL), ...options);
  choice.value = ALL;
  choice.setAttribute("aria-label", label);
  return choice;
}

function isChosen(choice, values) {
  return choice.value === ALL || values.includes(choice.value);
}

function wordsOf(field) {
  return field.value.toLowerCase().split(/\s+/).filter(Boolean);
}

// Tables that stand in the page.

function enlivenTable(table) {
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const heads = [...table.tHead.rows[0].cells];
  const valueIn = (row, place) => row.cells[place].dataset.value ?? row.cells[place].textContent;
  makeSortable(heads, (head, direction) => {
    const place = heads.indexOf(head);
    body.append(...sorted(rows, row => valueIn(row, place), direction));
  });
  if (rows.length < 6) return;
  const choices = [];
  const count = make("output");
  const show = () => {
    const words = wordsOf(field);
    let shown = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      const isShown = words.every(word => text.includes(word))
        && choices.every(({place, choice}) => isChosen(choice, [row.cells[place].textContent]));
      row.hidden = !isShown;
      shown += isShown;
    }
    count.textContent = `${shown} of ${rows.length} rows`;
  };
  const field = makeSearch("Filter", show);
  heads.forEach((head, place) => {
    const kinds = [...new Set(rows.map(row => row.cells[place].textContent))].sort(compare);
    const hasNumbers = rows.some(row => row.cells[place].dataset.value);
    if (hasNumbers || kinds.length < 2 || kinds.length > Math.min(MOST_CHOICES, rows.length / 2)) return;
    choices.push({place, choice: makeChoice(head.textContent, kinds, show)});
  });
  const bar = make("p", {className: "filter"}, field, ...choices.map(({choice}) => choice), count);
  table.parentElement.before(bar);
  show();
}

// The rows to look at. They come as data, since thousands of them are too many to draw at once.

function textOf(segments) {
  return segments.join("");
}

function snippetOf(row) {
  const segments = row.texts?.[0]?.[1] ?? [row.judged[0]?.reasoning ?? ""];
  return [...textOf(segments).slice(0, 2 * SNIPPET)].slice(0, SNIPPET).join("");
}

function searchTextOf(row) {
  const parts = [row.id, row.label ?? ""];
  for (const [, segments] of row.texts ?? []) parts.push(textOf(segments));
  for (const judged of row.judged) {
    parts.push(judged.reasoning ?? "", judged.error ?? "");
    for (const finding of judged.findings ?? []) parts.push(...Object.values(finding));
    for (const round of judged.rounds ?? []) parts.push(round.model, round.reasoning ?? "", round.failure ?? "");
  }
  return parts.join("\n").toLowerCase();
}

const CELLS = {
  id: row => row.id,
  label: row => row.label ?? "",
  flags: row => (row.flags ?? []).join(", "),
  mean: row => row.mean ?? "",
  usd: row => row.usd ?? "",
  text: snippetOf,
};

function valueOf(row, key) {
  const [kind, number] = key.split(" ");
  return kind === "said" ? row.judged[number]?.said ?? "" : CELLS[kind](row);
}

function drawSaid(word) {
  const element = make("span", {className: "word", textContent: word});
  element.dataset.said = word;
  return element;
}

function drawMarked(segments) {
  return segments.map((text, place) => place % 2 ? make("mark", {textContent: text}) : text);
}

function drawCell(row, key) {
  const value = valueOf(row, key);
  const cell = make("td", {className: key.split(" ")[0]});
  if (key === "id") {
    cell.append(make("a", {href: linkOf(row), textContent: value}));
  } else if (value && (key === "label" || key.startsWith("said"))) {
    cell.append(drawSaid(value));
  } else {
    cell.textContent = value;
  }
  return cell;
}

function drawFinding(finding) {
  const where = [finding.dimension, finding.location].filter(Boolean).join(", ");
  const item = make("li", {});
  if (where) item.append(make("b", {textContent: `${where}: `}));
  item.append(finding.issue);
  if (finding.quote) item.append(" ", make("q", {textContent: finding.quote}));
  if (finding.suggestion) item.append(" ", make("i", {textContent: finding.suggestion}));
  return item;
}

function drawRound(round) {
  const said = make("td", {}, round.failure ? `failed: ${round.failure}` : drawSaid(round.said ?? ""));
  if (round.decided) said.append(" decided");
  const cells = [round.tier, round.model].map(text => make("td", {textContent: text}));
  const rest = [round.usd, round.seconds].map(text => make("td", {textContent: text ?? ""}));
  const lines = [make("tr", {}, ...cells, said, ...rest)];
  const why = [round.scores, round.reasoning].filter(Boolean).join("\n");
  if (why) lines.push(make("tr", {}, make("td", {className: "long", colSpan: 5, textContent: why})));
  return lines;
}

function drawJudged(judged) {
  const part = make("section", {className: "judged"});
  part.append(make("h4", {}, `${judged.by}: `, drawSaid(judged.said)));
  if (judged.scores) part.append(make("p", {textContent: judged.scores}));
  if (judged.error) part.append(make("p", {className: "error", textContent: judged.error}));
  if (judged.reasoning) part.append(make("p", {className: "long", textContent: judged.reasoning}));
  if (judged.findings) part.append(make("ul", {}, ...judged.findings.map(drawFinding)));
  if (judged.rounds) {
    const names = ["tier", "model", "said", "USD", "seconds"];
    const head = make("tr", {}, ...names.map(name => make("th", {scope: "col", textContent: name})));
    const body = make("tbody", {}, ...judged.rounds.flatMap(drawRound));
    const table = make("table", {}, make("thead", {}, head), body);
    part.append(make("div", {className: "wide"}, table));
  }
  return part;
}

function drawMore(row, columnCount) {
  const texts = make("section", {className: "texts"});
  for (const [name, segments] of row.texts ?? []) {
    texts.append(make("h4", {textContent: name}), make("p", {className: "long"}, ...drawMarked(segments)));
  }
  const inner = make("div", {className: "sides"}, texts, ...row.judged.map(drawJudged));
  return make("tr", {className: "more"}, make("td", {colSpan: columnCount}, inner));
}

function nameOf(row) {
  return `row-${row.id}`;
}

function linkOf(row) {
  return `#${encodeURIComponent(nameOf(row))}`;
}

function readLink(hash) {
  try {
    return decodeURIComponent(hash.slice(1));
  } catch {
    return ""; // somebody cut the link
  }
}

class RowList {
  constructor(box, rows) {
    this.box = box;
    this.table = box.querySelector("table");
    this.heads = [...this.table.tHead.rows[0].cells];
    this.keys = this.heads.map(head => head.dataset.key);
    this.rows = rows;
    this.order = rows; // all rows as they are sorted
    this.shown = rows; // those of them that fit what is searched and chosen
    this.open = new Set();
    this.current = null; // the row that the keyboard is at
    this.chunks = []; // of shown rows, each with the body that holds them once they are in view
    this.searchTexts = new Map();
    this.watcher = new IntersectionObserver(entries => this.drawSeen(entries), {root: box, rootMargin: "600px"});
  }

  start() {
    this.addBar();
    makeSortable(this.heads, (head, direction) => {
      this.order = sorted(this.rows, row => valueOf(row, head.dataset.key), direction);
      this.filter();
    });
    document.addEventListener("keydown", event => this.obeyKey(event));
    addEventListener("hashchange", () => this.goToLink());
    addEventListener("beforeprint", () => this.drawForPrint());
    this.box.classList.add("scrolled");
    this.draw();
    this.goToLink();
    setTimeout(() => this.prepareSearch(0), 50);
  }

  // Search and choices

  addBar() {
    this.field = makeSearch("Search (/)", () => this.filter());
    this.choices = [];
    this.heads.forEach((head, place) => this.addChoice(head.textContent, this.keys[place]));
    this.count = make("output");
    const openAll = make("button", {type: "button", textContent: "Open all"});
    openAll.onclick = () => this.openOrCloseAll(openAll);
    const help = make("small", {textContent: "Keys: j and k to move, Enter to open, / to search"});
    const boxes = this.choices.map(({choice}) => choice);
    this.box.before(make("p", {className: "filter"}, this.field, ...boxes, openAll, this.count, help));
  }

  addChoice(label, key) {
    const isWord = key.startsWith("said") || key === "label";
    if (!isWord && key !== "flags") return;
    const valuesOf = isWord ? row => [valueOf(row, key)] : row => row.flags ?? [""];
    const kinds = [...new Set(this.rows.flatMap(valuesOf))].sort(compare);
    if (kinds.length < 2 || kinds.length > 2 * MOST_CHOICES) return;
    this.choices.push({choice: makeChoice(label, kinds, () => this.filter()), valuesOf});
  }

  filter() {
    const words = wordsOf(this.field);
    this.shown = this.order.filter(row => this.fits(row, words));
    this.draw();
    this.box.scrollTop = 0;
  }

  fits(row, words) {
    return this.choices.every(({choice, valuesOf}) => isChosen(choice, valuesOf(row)))
      && words.every(word => this.searchTextOf(row).includes(word));
  }

  searchTextOf(row) {
    if (!this.searchTexts.has(row)) this.searchTexts.set(row, searchTextOf(row));
    return this.searchTexts.get(row);
  }

  // What is searched is made ready bit by bit, while nothing else is to be done.
  prepareSearch(start) {
    const end = start + 500;
    for (const row of this.rows.slice(start, end)) this.searchTextOf(row);
    if (end < this.rows.length) setTimeout(() => this.prepareSearch(end), 0);
  }

  showAll() {
    this.field.value = "";
    for (const {choice} of this.choices) choice.value = ALL;
    this.filter();
  }

  // Drawing

  draw() {
    this.watcher.disconnect();
    this.chunks = [];
    let end = 0;
    while (end < this.shown.length) {
      const start = end;
      end += start ? DRAWN_TOGETHER : DRAWN_FIRST;
      this.chunks.push(this.makeChunk(this.shown.slice(start, end)));
    }
    for (const body of [...this.table.tBodies]) body.remove();
    this.table.append(...this.chunks.map(chunk => chunk.body));
    if (this.chunks.length) this.drawChunk(this.chunks[0]);
    for (const chunk of this.chunks.slice(1)) this.watcher.observe(chunk.body);
    const [shown, all] = [this.shown, this.rows].map(rows => rows.length.toLocaleString("en"));
    this.count.textContent = `${shown} of ${all} rows`;
  }

  // Until its rows are drawn, a chunk has one cell that is about as high as they will be.
  makeChunk(rows) {
    const space = make("td", {colSpan: this.keys.length});
    space.style.height = `${LINE_HEIGHT * rows.length}px`;
    return {rows, body: make("tbody", {}, make("tr", {}, space)), isDrawn: false};
  }

  drawSeen(entries) {
    for (const entry of entries) {
      if (entry.isIntersecting) this.drawChunk(this.chunks.find(chunk => chunk.body === entry.target));
    }
  }

  drawChunk(chunk) {
    if (chunk.isDrawn) return;
    chunk.isDrawn = true;
    this.watcher.unobserve(chunk.body);
    chunk.body.replaceChildren(...chunk.rows.flatMap(row => this.drawRow(row)));
  }

  drawRow(row) {
    const isOpen = this.open.has(row);
    const cells = this.keys.map(key => drawCell(row, key));
    const line = make("tr", {className: "line", id: nameOf(row)}, ...cells);
    line.querySelector("a").setAttribute("aria-expanded", isOpen);
    line.classList.toggle("open", isOpen);
    line.classList.toggle("current", row === this.current);
    line.onclick = event => this.obeyClick(event, row);
    return isOpen ? [line, drawMore(row, this.keys.length)] : [line];
  }

  redraw(row) {
    const line = this.lineOf(row);
    if (!line) return;
    if (line.nextElementSibling?.className === "more") line.nextElementSibling.remove();
    line.replaceWith(...this.drawRow(row));
  }

  // The line of a row, drawn now if it was not in view; null if the row is not shown.
  lineOf(row) {
    const chunk = this.chunks.find(each => each.rows.includes(row));
    if (!chunk) return null;
    this.drawChunk(chunk);
    return document.getElementById(nameOf(row));
  }

  drawForPrint() {
    for (const chunk of this.chunks.slice(0, MOST_PRINTED / DRAWN_TOGETHER)) this.drawChunk(chunk);
    for (const chunk of this.chunks) chunk.body.classList.toggle("unprinted", !chunk.isDrawn);
  }

  // Moving and opening

  obeyClick(event, row) {
    if (event.ctrlKey || event.metaKey || event.shiftKey || String(getSelection())) return;
    event.preventDefault();
    this.moveTo(row);
    this.toggle(row);
  }

  obeyKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") document.activeElement.blur();
    if (event.target.closest("input, select, button, a")) return;
    const acts = {
      j: () => this.step(1),
      k: () => this.step(-1),
      "/": () => this.field.focus(),
      Enter: () => this.current && this.toggle(this.current),
    };
    if (!Object.hasOwn(acts, event.key)) return;
    event.preventDefault();
    acts[event.key]();
  }

  step(by) {
    const row = this.shown[this.shown.indexOf(this.current) + by];
    if (row) this.moveTo(row);
  }

  moveTo(row) {
    const before = this.current;
    this.current = row;
    if (before && before !== row) this.lineOf(before)?.classList.remove("current");
    const line = this.lineOf(row);
    line?.classList.add("current");
    line?.scrollIntoView({block: "nearest"});
  }

  toggle(row) {
    if (!this.open.delete(row)) this.open.add(row);
    this.redraw(row);
    if (this.open.has(row)) history.replaceState(null, "", linkOf(row));
  }

  openOrCloseAll(button) {
    const isOpening = button.textContent === "Open all";
    this.open = new Set(isOpening ? this.shown : []);
    button.textContent = isOpening ? "Close all" : "Open all";
    this.draw();
  }

  goToLink() {
    const name = readLink(location.hash);
    const row = this.rows.find(each => nameOf(each) === name);
    if (!row) return;
    if (!this.shown.includes(row)) this.showAll();
    this.open.add(row);
    this.redraw(row);
    this.moveTo(row);
    this.lineOf(row).scrollIntoView({block: "start"});
    this.box.scrollIntoView({block: "nearest"});
  }
}

for (const table of document.querySelectorAll("table.rows")) enlivenTable(table);
// No row has this name: theirs begin with "row-".
const data = document.getElementById("rows-as-data");
if (data) new RowList(document.querySelector(".list"), JSON.parse(data.textContent)).start();
