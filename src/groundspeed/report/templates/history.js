"use strict";
// The chart of the line that was chosen by a link in the table or by the address. Text is only ever set as text.
(() => {
  const { runs, lines } = JSON.parse(document.getElementById("history").textContent);
  const panel = document.getElementById("chart");
  const part = (selector) => panel.querySelector(selector);
  const MARKED = ["driver", "PyTorch", "GPU"];
  const HEIGHT = 300, LEFT = 64, RIGHT = 16, TOP = 26, BOTTOM = 30;
  let shown = null;

  function element(name, attributes = {}, ...children) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }
  const number = (line, value, more = 0) => line.unit === "×" ? value.toFixed((value < 9.995 ? 2 : 1) + more)
    : value.toLocaleString("en", { minimumSignificantDigits: 3, maximumSignificantDigits: 3 });
  const quantity = (line, value, more) => `${number(line, value, more)}${line.unit === "×" ? "" : " "}${line.unit}`;

  function said(line, point) {
    const [, value, low, high, status] = point;
    if (value === null) return status === "PASSED" ? "no pair to compare" : status;
    if (low === null) return `${quantity(line, value)} (one process)`;
    const more = [0, 1].find((n) => number(line, low, n) !== number(line, high, n)) ?? 2;  // enough digits to tell the ends apart
    return `${quantity(line, value, more)} (${number(line, low, more)}–${number(line, high, more)})`;
  }

  // The differences between two runs, as far as their records tell.
  function differences(line, before, after, only) {
    const [one, other] = [runs[before[0]].about, runs[after[0]].about];
    const found = (only ?? [...new Set([...Object.keys(one), ...Object.keys(other)])])
      .filter((key) => one[key] !== other[key] && key !== "revision")  // the contender's version contains it
      .map((key) => `${key} ${short(key, one[key])} → ${short(key, other[key])}`);
    if (!only && before[5] !== after[5]) found.push(`${line.contender} ${line.versions[before[5]]} → ${line.versions[after[5]]}`);
    return found;
  }
  const short = (key, value) => value === undefined ? "–" : key === "groundspeed commit" || key === "GPU" ? value.slice(0, 8) : value;

  function ticks(low, high) {
    const rough = (high - low) / 5, size = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 2.5, 5, 10].map((n) => n * size).find((n) => n >= rough);
    const first = Math.ceil(low / step);
    const places = Math.max(0, -Math.floor(Math.log10(step) + 1e-9) + (Math.abs(step / 10 ** Math.floor(Math.log10(step) + 1e-9) - 2.5) < 0.01 ? 1 : 0));
    return Array.from({ length: Math.max(0, Math.floor(high / step) - first + 1) }, (_, i) =>
      [(first + i) * step, ((first + i) * step).toLocaleString("en", { minimumFractionDigits: places, maximumFractionDigits: places })]);
  }

  function draw(line) {
    const width = Math.max(300, part(".plot").clientWidth || 800);
    const counted = line.points.filter((point) => point[1] !== null);
    const ends = counted.flatMap(([, value, low, high]) => [value, low ?? value, high ?? value]);
    let [least, most] = ends.length ? [Math.min(...ends), Math.max(...ends)] : [0, 1];
    const room = Math.max((most - least) * 0.08, 2 * line.floor * most - (most - least) / 2, most * 1e-6);  // noise should look like noise
    least -= room; most += room;
    const step = (width - LEFT - RIGHT) / Math.max(1, line.points.length - 1);
    const single = line.points.length === 1 ? (width - LEFT - RIGHT) / 2 : 0;
    const x = (i) => LEFT + single + i * step;
    const y = (value) => TOP + (most - value) / (most - least) * (HEIGHT - TOP - BOTTOM);
    const place = new Map(line.points.map((point, i) => [point, i]));
    const svg = element("svg", { class: step < 5 ? "dense" : "", viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": `${line.view} of ${line.contender} on ${line.case}, run by run` });
    for (const [value, words] of ends.length ? ticks(least, most) : []) {
      svg.append(element("path", { class: "grid", d: `M${LEFT} ${y(value)}H${width - RIGHT}` }),
        element("text", { x: LEFT - 8, y: y(value) + 4, "text-anchor": "end" }, words));
    }
    svg.append(element("text", { x: LEFT - 8, y: 12, "text-anchor": "end" }, line.unit));
    dates(svg, line, x, width);
    settings(svg, line, x);
    let path = "", gap = true;
    for (const point of line.points) {
      if (point[1] !== null) path += `${gap ? "M" : "L"}${x(place.get(point))} ${y(point[1])}`;
      gap = point[1] === null;
    }
    svg.append(element("path", { class: "run", d: path }));
    for (const change of line.changes) {
      const at = (x(place.get(counted[change.at - 1])) + x(place.get(counted[change.at]))) / 2;
      const right = at > width * 0.75;
      svg.append(element("path", { class: "change", d: `M${at} ${TOP}V${HEIGHT - BOTTOM}` }),
        element("text", { class: "shift", x: at + (right ? -5 : 5), y: TOP + 10, "text-anchor": right ? "end" : "start" }, change.said));
    }
    const radius = Math.max(1.5, Math.min(4, step / 3));
    line.points.forEach((point, i) => {
      const [run, value, low, high] = point;
      const link = element("a", { href: runs[run].report, "aria-label": `${runs[run].when}: ${said(line, point)}` });
      if (value === null) {
        const [cx, cy] = [x(i), HEIGHT - BOTTOM - 8];
        link.append(element("path", { class: "failed", d: `M${cx - 4} ${cy - 4}l8 8m0 -8l-8 8` }));
      } else {
        if (low !== null) svg.append(element("path", { class: "ends", d: `M${x(i)} ${y(low)}V${y(high)}` }));
        link.append(element("circle", { cx: x(i), cy: y(value), r: radius }));
      }
      link.addEventListener("focus", () => read(line, i));
      svg.append(link);
    });
    line.levels.forEach((level, i) => {
      const from = i ? line.changes[i - 1].at : 0, to = i < line.changes.length ? line.changes[i].at : counted.length;
      svg.append(element("path", { class: "level", d: `M${x(place.get(counted[from]) - 0.35)} ${y(level)}H${x(place.get(counted[to - 1]) + 0.35)}` }));
    });
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      const at = (event.clientX - box.left) / box.width * width;
      read(line, Math.max(0, Math.min(line.points.length - 1, Math.round((at - LEFT - single) / step))));
    });
    part(".plot").replaceChildren(svg);
    read(line, line.points.length - 1);
  }

  function dates(svg, line, x, width) {
    const fit = Math.max(1, Math.floor((width - LEFT - RIGHT) / 90)), every = Math.ceil(line.points.length / fit);
    let before = "";
    for (let i = 0; i < line.points.length; i += every) {
      const day = runs[line.points[i][0]].when.slice(0, 10), time = runs[line.points[i][0]].when.slice(11);
      svg.append(element("text", { x: Math.min(x(i), width - 34), y: HEIGHT - 10, "text-anchor": "middle" }, day === before ? time : day));
      before = day;
    }
  }

  function settings(svg, line, x) {
    let free = 0;
    for (let i = 1; i < line.points.length; i++) {
      const changed = differences(line, line.points[i - 1], line.points[i], MARKED);
      if (!changed.length) continue;
      const at = x(i - 0.5), words = changed.map((one) => one.split(" ")[0]).join(", ");
      svg.append(element("path", { class: "setting", d: `M${at} ${TOP - 8}V${HEIGHT - BOTTOM}` }));
      if (at >= free) svg.append(element("text", { x: at, y: TOP - 12, "text-anchor": "middle" }, words));
      free = Math.max(free, at + 7 * words.length + 8);
    }
  }

  function read(line, i) {
    const point = line.points[i], run = runs[point[0]];
    const link = Object.assign(document.createElement("a"), { href: run.report, textContent: "report" });
    const changed = i ? differences(line, line.points[i - 1], point) : [];
    part(".readout").replaceChildren(`${run.when}: `, Object.assign(document.createElement("strong"), { textContent: said(line, point) }),
      changed.length ? `; since the previous run: ${changed.join(", ")}; ` : "; ", link);
    part(".plot a.here")?.classList.remove("here");
    part(".plot svg").querySelectorAll("a")[i].classList.add("here");
  }

  function list(line) {
    const counted = line.points.filter((point) => point[1] !== null);
    part(".changes").replaceChildren(...line.changes.map((change) => {
      const [before, after] = [counted[change.at - 1], counted[change.at]];
      const changed = differences(line, before, after);
      const item = document.createElement("li"), what = document.createElement("strong");
      what.textContent = change.said;
      what.className = change.good ? "good" : "bad";
      item.append(what, ` (${change.ends[0]} to ${change.ends[1]}) from ${runs[before[0]].when} to ${runs[after[0]].when}`,
        changed.length ? `; changed with it: ${changed.join(", ")}` : "; the records show no other change");
      return item;
    }));
    const table = part("details table");
    table.replaceChildren();
    const row = (parent, cells, name) => { const made = parent.insertRow(); for (const cell of cells) { const one = document.createElement(name); one.append(cell); made.append(one); } };
    row(table.createTHead(), ["started (UTC)", line.view, "groundspeed commit", "since the previous run", "report"], "th");
    const body = table.createTBody();
    line.points.forEach((point, i) => {
      const run = runs[point[0]];
      const link = Object.assign(document.createElement("a"), { href: run.report, textContent: run.bundle });
      const changed = i ? differences(line, line.points[i - 1], point).filter((one) => !one.startsWith("groundspeed commit ")) : [];
      row(body, [run.when, said(line, point), short("groundspeed commit", run.about["groundspeed commit"]), changed.join(", "), link], "td");
    });
  }

  function show(key, scroll) {
    shown = Object.hasOwn(lines, key) ? lines[key] : null;
    panel.hidden = shown === null;
    for (const link of document.querySelectorAll("a.line")) link.closest("tr").classList.toggle("chosen", link.hash === `#${key}`);
    if (!shown) return;
    part("h3").textContent = `${shown.contender} on ${shown.case}${shown.baseline ? `, against ${shown.baseline}` : ""}: ${shown.view}`;
    part(".about").textContent = shown.about.join(" · ");
    list(shown);
    draw(shown);
    if (scroll) panel.scrollIntoView({ block: "nearest" });
  }

  // Shows the same line in the view of the tab that was chosen, or no chart if that view does not have the line.
  function turn(view) {
    if (!shown || shown.view === view) return;
    const same = (other) => other.view === view && ["case", "contender", "about"].every((part) => `${other[part]}` === `${shown[part]}`);
    const [key] = Object.entries(lines).find(([, other]) => same(other)) ?? [""];
    history.replaceState(null, "", key ? `#${key}` : location.pathname);
    show(key);
  }
  function open() {
    show(asked(), true);
    if (shown) [...document.querySelectorAll("[role=tab]")].find((button) => button.textContent === shown.view)?.click();
  }

  const asked = () => decodeURIComponent(location.hash.slice(1));
  addEventListener("hashchange", open);
  document.querySelector("#lines [data-tabs]").addEventListener("click", ({ target }) => { if (target.matches("[role=tab]")) turn(target.textContent); });
  part(".close").addEventListener("click", () => { history.replaceState(null, "", location.pathname); show(""); });
  let width = innerWidth;
  addEventListener("resize", () => { if (shown && innerWidth !== width) { width = innerWidth; draw(shown); } });
  addEventListener("DOMContentLoaded", open);
})();
