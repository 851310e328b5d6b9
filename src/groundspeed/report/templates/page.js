"use strict";
// For every page: a switch between light and dark, tables that sort and filter, a list of contents that follows.
// Text is only ever set as text.
(() => {
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const theme = document.getElementById("theme");
  const kept = { get: () => { try { return localStorage.getItem("groundspeed-theme"); } catch { return null; } },
    set: (value) => { try { localStorage.setItem("groundspeed-theme", value); } catch { /* the page may not store anything */ } } };

  function show(name) {
    if (name === "light" || name === "dark") root.dataset.theme = name; else delete root.dataset.theme;
    const now = root.dataset.theme ?? (dark.matches ? "dark" : "light");
    theme.textContent = now === "dark" ? "light" : "dark";
    theme.setAttribute("aria-label", `show this page ${theme.textContent}`);
  }
  show(kept.get());
  theme.hidden = false;
  theme.addEventListener("click", () => { show(theme.textContent); kept.set(root.dataset.theme); });
  dark.addEventListener("change", () => show(root.dataset.theme));

  const UNITS = { ns: 1e-9, "µs": 1e-6, ms: 1e-3, s: 1, B: 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, TiB: 2 ** 40,
    k: 1e3, M: 1e6, G: 1e9, T: 1e12 };
  const NUMBER = /^[<+]?(-?[\d,]*\.?\d+(?:e[+-]?\d+)?)\s*(\p{L}*)/u;

  function value(cell) {
    const found = NUMBER.exec(cell.textContent);
    return found ? Number(found[1].replaceAll(",", "")) * (UNITS[found[2]] ?? 1) : NaN;
  }

  function sort(table, index, number, down) {
    const rows = [...table.tBodies[0].rows].map((row) => [row, number ? value(row.cells[index]) : row.cells[index].textContent]);
    const sign = down ? -1 : 1;
    rows.sort(([, a], [, b]) => number ? (isNaN(a) - isNaN(b)) || sign * (a - b) : sign * a.localeCompare(b, "en", { numeric: true }));
    table.tBodies[0].append(...rows.map(([row]) => row));
  }

  for (const table of document.querySelectorAll("table.sortable")) {
    [...table.tHead.rows[0].cells].forEach((heading, index) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...heading.childNodes);
      heading.append(button);
      button.addEventListener("click", () => {
        const number = heading.classList.contains("n");
        const first = number ? "descending" : "ascending";
        const next = heading.getAttribute("aria-sort") !== first ? first : number ? "ascending" : "descending";
        for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
        heading.setAttribute("aria-sort", next);
        sort(table, index, number, next === "descending");
      });
    });
    // A number that is cut off reads as a different number, so shadows show that it is cut, and a line above that there is more.
    const wide = table.parentElement;
    function mark() {
      const beyond = wide.scrollWidth - wide.clientWidth;
      wide.classList.toggle("wider", beyond > 1);
      wide.classList.toggle("scrolled", wide.scrollLeft > 0);
      wide.classList.toggle("ended", beyond - wide.scrollLeft <= 1);
    }
    wide.addEventListener("scroll", mark, { passive: true });
    // In the next frame: the line makes its box higher, and an observer may not resize what it observes.
    const sizes = new ResizeObserver(() => requestAnimationFrame(mark));
    for (const one of [wide, table]) sizes.observe(one);
    // The second column may stay beside the first when the table is scrolled, so page.css needs the width of the first.
    const first = table.tHead.rows[0].cells[0];
    new ResizeObserver(() => table.style.setProperty("--first", `${first.offsetWidth}px`)).observe(first);
    if (!table.dataset.few) continue;
    const more = document.createElement("button");
    more.type = "button";
    more.className = "more";
    more.textContent = `show all ${table.tBodies[0].rows.length.toLocaleString("en")} rows`;
    more.addEventListener("click", () => { table.classList.add("all"); more.remove(); });
    table.parentElement.after(more);
  }

  for (const form of document.querySelectorAll("form.filter")) {
    const tables = [...document.querySelectorAll(`#${form.dataset.filter} table.sortable`)];
    const [input, output] = [form.querySelector("input"), form.querySelector("output")];
    const selects = new Map();  // heading → its select element
    const lists = new Map();
    for (const table of tables) {
      [...table.tHead.rows[0].cells].forEach((heading, index) => {
        if (!heading.hasAttribute("data-choose")) return;
        const seen = lists.get(heading.textContent) ?? lists.set(heading.textContent, new Set()).get(heading.textContent);
        for (const row of table.tBodies[0].rows) seen.add(row.cells[index].textContent);
      });
    }
    for (const [name, values] of lists) {
      const select = document.createElement("select");
      select.setAttribute("aria-label", name);
      select.append(new Option(`every ${name}`, ""), ...[...values].map((one) => new Option(one, one)));
      select.addEventListener("change", apply);
      selects.set(name, select);
      form.querySelector(".choices").append(select);
    }
    function apply() {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      const there = new Set();  // headings of the tables in view; a select for any other heading would filter nothing visible
      for (const table of tables) {
        const headings = [...table.tHead.rows[0].cells].map((heading) => heading.textContent);
        const rules = headings.map((name, i) => [i, selects.get(name)?.value]).filter(([, wanted]) => wanted);
        let [shown, all] = [0, 0];
        for (const row of table.tBodies[0].rows) {
          const said = words.length ? row.textContent.toLowerCase() : "";
          row.hidden = !words.every((word) => said.includes(word)) || !rules.every(([i, wanted]) => row.cells[i].textContent === wanted);
          all += 1;
          shown += !row.hidden;
        }
        const more = table.parentElement.nextElementSibling;
        if (more?.matches(".more")) {
          more.hidden = shown <= Number(table.dataset.few);
          more.textContent = `show all ${shown.toLocaleString("en")} rows`;
        }
        if (table.closest("[hidden]")) continue;
        for (const name of headings) there.add(name);
        output.textContent = shown === all ? "" : `${shown.toLocaleString("en")} of ${all.toLocaleString("en")} rows`;
      }
      for (const [name, select] of selects) select.hidden = !there.has(name);
    }
    let soon = 0;
    input.addEventListener("input", () => { clearTimeout(soon); soon = setTimeout(apply, 60); });
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("regroup", apply);
    addEventListener("pageshow", apply);  // after Back the browser restores the fields without an event
    form.hidden = false;
  }

  // Tabs: buttons in [role=tablist] whose panels follow; without scripts all panels are below each other.
  for (const list of document.querySelectorAll("[data-tabs]")) {
    const panels = [...list.parentElement.querySelectorAll(":scope > [data-tab]")];
    const buttons = panels.map((panel) => {
      const button = document.createElement("button");
      button.type = "button";
      button.setAttribute("role", "tab");
      button.textContent = panel.dataset.tab;
      button.addEventListener("click", () => choose(panel));
      return button;
    });
    function choose(panel) {
      panels.forEach((one, i) => { one.hidden = one !== panel; buttons[i].setAttribute("aria-selected", String(one === panel)); });
      list.closest("section")?.querySelector("form.filter")?.dispatchEvent(new Event("regroup"));
    }
    list.setAttribute("role", "tablist");
    list.append(...buttons);
    if (panels.length) choose(panels[0]);
  }

  // Folded parts are opened for printing, because nothing can be opened on paper.
  addEventListener("beforeprint", () => {
    for (const folded of document.querySelectorAll("details:not([open])")) { folded.open = true; folded.dataset.paper = ""; }
  });
  addEventListener("afterprint", () => {
    for (const opened of document.querySelectorAll("details[data-paper]")) { opened.open = false; delete opened.dataset.paper; }
  });

  const links = new Map([...document.querySelectorAll(".contents a[href^='#']")].map((a) => [a.getAttribute("href").slice(1), a]));
  const near = new Set();  // sections near the top of the screen; two where one ends
  const watch = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) near[isIntersecting ? "add" : "delete"](target.id);
    const here = [...links.keys()].findLast((id) => near.has(id));
    if (here) for (const [id, a] of links) a.classList.toggle("here", id === here);
  }, { rootMargin: "-10% 0px -80% 0px" });
  for (const id of links.keys()) { const section = document.getElementById(id); if (section) watch.observe(section); }
})();
