"use strict";
// Draws the charts of a page: each when it comes into view, the others when there is time, all before printing. Names
// and texts are data values; the expressions are ours, and are interpreted because the page's policy forbids eval.
(() => {
  const read = (id) => JSON.parse(document.getElementById(id)?.textContent ?? "null");
  const charts = read("charts");
  if (!charts) return;
  const samples = read("sample-data");
  const LEAST_NAMES = 90, MOST_NAMES = 260;

  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  document.body.append(tip);
  function tell(handler, event, item, value) {
    tip.hidden = value == null || value === "";
    if (tip.hidden) return;
    tip.textContent = Object.values(value).join(", ");
    const { innerWidth, innerHeight } = window;
    tip.style.left = `${Math.max(4, Math.min(event.clientX + 12, innerWidth - tip.offsetWidth - 4))}px`;
    tip.style.top = `${Math.max(4, Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 4))}px`;
  }
  addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });

  function unpack({ length, columns }) {
    const cells = Object.entries(columns).map(([key, column]) => [key, (i) => column.texts ? column.texts[column.at[i]] : column[i]]);
    return Array.from({ length }, (_, i) => Object.fromEntries(cells.map(([key, cell]) => [key, cell(i)])));
  }

  const drawings = new Map();  // canvas → its chart, values and state

  async function draw(canvas) {
    const drawing = drawings.get(canvas);
    const width = canvas.clientWidth;
    if (!drawing || !width) return;
    drawing.width = width;
    const { spec, rowHeight } = drawing.chart;
    const values = drawing.values();
    const full = structuredClone(spec);
    full.width = width;
    full.data = { values };
    if (rowHeight) full.height = rowHeight * new Set(values.map((v) => v.case ?? v.row)).size + 40;
    const names = Math.max(LEAST_NAMES, Math.min(MOST_NAMES, width * 0.46));
    for (const layer of full.layer) {
      const axis = layer.encoding.y?.axis;
      if (rowHeight && axis) axis.labelLimit = names;
    }
    drawing.done?.finalize();
    const before = drawing.turn = (drawing.turn ?? 0) + 1;
    try {
      const done = await vegaEmbed(canvas, full, { mode: "vega-lite", renderer: "svg", actions: false, ast: true, logLevel: 1,
        defaultStyle: false, tooltip: tell, loader: { load: () => { throw new Error("nothing is loaded"); } } });
      if (drawing.turn === before) { drawing.done = done; canvas.dataset.drawn = "yes"; } else done.finalize();
    } catch (error) {
      canvas.textContent = "This chart could not be drawn.";
      canvas.dataset.drawn = "no";
      console.error(error);
    }
  }

  const seen = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) if (isIntersecting) { seen.unobserve(target); draw(target); }
  }, { rootMargin: "300px" });

  function add(canvas, chart, values) {
    drawings.set(canvas, { chart, values });
    seen.observe(canvas);
  }

  for (const figure of document.querySelectorAll("[data-figure]")) {
    const chart = charts[figure.dataset.figure];
    const select = figure.querySelector("select");
    const canvases = [...figure.querySelectorAll(".canvas")];
    const picked = (values) => select ? values.filter((v) => v[select.dataset.key] === select.value) : values;
    canvases.forEach((canvas, i) => add(canvas, chart, () => picked(unpack(chart.panels[i]))));
    select?.addEventListener("change", () => canvases.forEach(draw));
  }

  if (samples) {
    const select = document.getElementById("sample-case");
    const held = document.getElementById("held");
    const of = (list, i) => list.length === 1 ? list[0] : list[i];
    const percent = (off) => `${off > 0 ? "+" : ""}${off.toFixed(2)}%`;
    const chosen = () => samples.cases[Number(select.value)];
    const count = (one) => one.blocks.reduce((a, b) => a + b, 0);
    function points(one) {
      return one.off.flatMap((list, w) => list.flatMap((off, at) => off === null ? [] : [{ contender: one.who[w],
        row: `${one.who[w]}, ${one.medians[w]}`, at, off: off / samples.parts, said: `${one.who[w]}: ${percent(off / samples.parts)}` }]));
    }
    function begins(one) {
      let at = 0;
      return one.blocks.map((n, i) => { const row = { role: "begin", at: at - 0.5, said: `${i + 1}` }; at += n; return row; });
    }
    const telemetry = (name) => (one) => one[name] === undefined ? [] : Array.from({ length: count(one) }, (_, at) => ({ at,
      value: of(one[name], at), held: one.held.includes(at), said: "the device throttled its clocks" })).filter((v) => v.value !== null);
    const makers = { "samples-spread": points, "samples-order": (one) => [...begins(one), ...points(one)],
      "samples-clock": telemetry("clock"), "samples-temperature": telemetry("temperature") };
    const canvases = [];
    for (const figure of document.querySelectorAll("[data-samples]")) {
      const canvas = figure.querySelector(".canvas");
      const make = makers[figure.dataset.samples];
      add(canvas, charts[figure.dataset.samples], () => make(chosen()));
      canvases.push(canvas);
    }
    function count_held() {
      if (!held) return;
      const one = chosen();
      held.textContent = one.held ? `In this case: ${one.held.length} of ${count(one)} blocks.` : "";
    }
    select.addEventListener("change", () => { canvases.forEach(draw); count_held(); });
    count_held();
  }

  let later = 0;
  new ResizeObserver(() => {
    clearTimeout(later);
    later = setTimeout(() => {
      for (const [canvas, drawing] of drawings) if (drawing.width && canvas.clientWidth !== drawing.width) draw(canvas);
    }, 150);
  }).observe(document.querySelector("main"));

  const rest = () => [...drawings.keys()].filter((canvas) => !drawings.get(canvas).width);
  const idle = window.requestIdleCallback ?? ((call) => setTimeout(call, 50));
  function next() {
    const [canvas] = rest();
    if (canvas) { seen.unobserve(canvas); draw(canvas).then(() => idle(next)); } else document.documentElement.dataset.drawn = "all";
  }
  addEventListener("load", () => setTimeout(() => idle(next), 400));
  addEventListener("beforeprint", () => rest().forEach(draw));
})();
