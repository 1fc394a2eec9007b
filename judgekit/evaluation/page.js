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
  const choice = make("select", {onchange: onChange}, new Option(`${label}: all`, "\0"), ...options);
  choice.value = "\0";
  choice.setAttribute("aria-label", label);
  return choice;
}

function isChosen(choice, values) {
  return choice.value === "\0" || values.includes(choice.value);
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

function listRows(box, rows) {
  const table = box.querySelector("table");
  const heads = [...table.tHead.rows[0].cells];
  const keys = heads.map(head => head.dataset.key);
  const open = new Set();
  const searched = new Map(); // the text of a row, in small letters
  let order = rows;
  let shown = rows;
  let current = null; // the row that the keyboard is at
  let chunks = []; // of rows: the body that holds them, once they are in view

  const drawRow = row => {
    const line = make("tr", {className: "line", id: nameOf(row)}, ...keys.map(key => drawCell(row, key)));
    line.querySelector("a").setAttribute("aria-expanded", open.has(row));
    line.classList.toggle("open", open.has(row));
    if (row === current) line.classList.add("current");
    line.onclick = event => {
      if (event.ctrlKey || event.metaKey || event.shiftKey || String(getSelection())) return;
      event.preventDefault();
      moveTo(row);
      toggle(row);
    };
    return open.has(row) ? [line, drawMore(row, keys.length)] : [line];
  };
  const drawChunk = chunk => {
    if (chunk.isDrawn) return;
    chunk.isDrawn = true;
    watcher.unobserve(chunk.body);
    chunk.body.replaceChildren(...chunk.rows.flatMap(drawRow));
  };
  const watcher = new IntersectionObserver(entries => {
    for (const entry of entries) {
      if (entry.isIntersecting) drawChunk(chunks.find(chunk => chunk.body === entry.target));
    }
  }, {root: box, rootMargin: "600px"});
  const draw = () => {
    watcher.disconnect();
    chunks = [];
    let end = 0;
    while (end < shown.length) {
      const start = end;
      end += start ? DRAWN_TOGETHER : DRAWN_FIRST;
      const part = shown.slice(start, end);
      const space = make("td", {colSpan: keys.length});
      space.style.height = `${LINE_HEIGHT * part.length}px`;
      const body = make("tbody", {}, make("tr", {}, space));
      chunks.push({rows: part, body, isDrawn: false});
    }
    for (const body of [...table.tBodies]) body.remove();
    table.append(...chunks.map(chunk => chunk.body));
    if (chunks.length) drawChunk(chunks[0]);
    for (const chunk of chunks.slice(1)) watcher.observe(chunk.body);
    count.textContent = `${shown.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")} rows`;
  };

  const searchedTextOf = row => {
    if (!searched.has(row)) searched.set(row, searchTextOf(row));
    return searched.get(row);
  };
  const choices = [];
  const isShown = (row, words) => choices.every(({choice, values}) => isChosen(choice, values(row)))
    && words.every(word => searchedTextOf(row).includes(word));
  const filter = () => {
    const words = wordsOf(field);
    shown = order.filter(row => isShown(row, words));
    draw();
    box.scrollTop = 0;
  };
  const field = makeSearch("Search (/)", filter);
  const count = make("output");
  const addChoice = (label, values) => {
    const kinds = [...new Set(rows.flatMap(values))].sort(compare);
    if (kinds.length > 1 && kinds.length <= 2 * MOST_CHOICES) {
      choices.push({choice: makeChoice(label, kinds, filter), values});
    }
  };
  for (const head of heads) {
    const key = head.dataset.key;
    if (key.startsWith("said") || key === "label") addChoice(head.textContent, row => [valueOf(row, key)]);
    if (key === "flags") addChoice(head.textContent, row => row.flags ?? [""]);
  }
  const openAll = make("button", {type: "button", textContent: "Open all"});
  openAll.onclick = () => {
    const isOpening = openAll.textContent === "Open all";
    open.clear();
    if (isOpening) shown.forEach(row => open.add(row));
    openAll.textContent = isOpening ? "Close all" : "Open all";
    draw();
  };
  const help = make("small", {textContent: "Keys: j and k to move, Enter to open, / to search"});
  const boxes = choices.map(({choice}) => choice);
  box.before(make("p", {className: "filter"}, field, ...boxes, openAll, count, help));

  makeSortable(heads, (head, direction) => {
    order = sorted(rows, row => valueOf(row, head.dataset.key), direction);
    filter();
  });

  const lineOf = row => {
    const chunk = chunks.find(each => each.rows.includes(row));
    if (!chunk) return null;
    drawChunk(chunk);
    return document.getElementById(nameOf(row));
  };
  const redraw = row => {
    const line = lineOf(row);
    if (line?.nextElementSibling?.className === "more") line.nextElementSibling.remove();
    line?.replaceWith(...drawRow(row));
  };
  const toggle = row => {
    if (!open.delete(row)) open.add(row);
    redraw(row);
    if (open.has(row)) history.replaceState(null, "", linkOf(row));
  };
  const moveTo = row => {
    const before = current;
    current = row;
    if (before && before !== row) lineOf(before)?.classList.remove("current");
    const line = lineOf(row);
    line?.classList.add("current");
    line?.scrollIntoView({block: "nearest"});
  };
  const step = by => {
    const place = shown.indexOf(current) + by;
    if (place >= 0 && place < shown.length) moveTo(shown[place]);
  };
  const goToLink = () => {
    const name = readLink(location.hash);
    const row = rows.find(each => nameOf(each) === name);
    if (!row) return;
    if (!shown.includes(row)) {
      field.value = "";
      for (const {choice} of choices) choice.value = "\0";
      filter();
    }
    open.add(row);
    redraw(row);
    moveTo(row);
    lineOf(row).scrollIntoView({block: "start"});
    box.scrollIntoView({block: "nearest"});
  };

  const KEYS = {
    j: () => step(1),
    k: () => step(-1),
    "/": () => field.focus(),
    Enter: () => current && toggle(current),
  };
  document.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") document.activeElement.blur();
    const isTyping = event.target.closest("input, select, button, a");
    const act = KEYS[event.key];
    if (isTyping || !act) return;
    event.preventDefault();
    act();
  });
  addEventListener("hashchange", goToLink);
  addEventListener("beforeprint", () => {
    for (const chunk of chunks.slice(0, MOST_PRINTED / DRAWN_TOGETHER)) drawChunk(chunk);
    for (const chunk of chunks) chunk.body.classList.toggle("unprinted", !chunk.isDrawn);
  });
  box.classList.add("scrolled");
  draw();
  goToLink();
  // What is searched is made ready while nothing else is to be done.
  const prepare = start => {
    for (const row of rows.slice(start, start + 500)) searchedTextOf(row);
    if (start + 500 < rows.length) setTimeout(prepare, 0, start + 500);
  };
  setTimeout(prepare, 50, 0);
}

for (const table of document.querySelectorAll("table.rows")) enlivenTable(table);
const data = document.getElementById("row-data");
if (data) listRows(document.querySelector(".list"), JSON.parse(data.textContent));
