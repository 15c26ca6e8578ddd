// The charts of the overview: rates that are polled, drawn as SVG. Everything else works without a script.
"use strict";

(() => {
  const board = document.querySelector("[data-traffic]");
  if (!board) return;

  const WIDTH = 300, TOP = 8, BOTTOM = 89, HEIGHT = 90;
  const LENGTH_S = 300;
  const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

  function text(value, unit) {
    if (unit === "bytes") {
      let step = 0;
      while (value >= 1024 && step < UNITS.length - 1) { value /= 1024; step += 1; }
      return `${value.toFixed(step && value < 100 ? 1 : 0)} ${UNITS[step]}/s`;
    }
    const digits = value > 0 && value < 10 ? 1 : 0;
    return `${value.toLocaleString("en", { maximumFractionDigits: digits })}/s`;
  }

  // The end of the axis: 1, 2 or 5 times a power of the base, not below the highest value.
  function ceiling(highest, unit) {
    if (highest <= 0) return 1;
    let power = 1;
    if (unit === "bytes") while (power * 1000 <= highest) power *= 1024;
    while (power * 10 <= highest) power *= 10;
    return [1, 2, 5, 10].map((step) => step * power).find((end) => end >= highest);
  }

  function add(parent, name, attributes, content) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (content !== undefined) made.textContent = content;
    parent.append(made);
    return made;
  }

  function draw(figure, ago, rates) {
    const { unit, title } = figure.dataset;
    const latest = rates.length ? rates[rates.length - 1] : 0;
    const highest = Math.max(0, ...rates);
    const end = ceiling(highest, unit);
    figure.querySelector("output").textContent = text(latest, unit);
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
    svg.setAttribute("preserveAspectRatio", "none");
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-label",
      `${title}: now ${text(latest, unit)}, at most ${text(highest, unit)} in the last five minutes`);
    const x = (seconds) => WIDTH * (1 - Math.min(seconds, LENGTH_S) / LENGTH_S);
    const y = (value) => BOTTOM - (BOTTOM - TOP) * value / end;
    for (const value of [0, end]) add(svg, "line", { class: "grid", x1: 0, x2: WIDTH, y1: y(value), y2: y(value) });
    if (rates.length > 1) {
      const points = rates.map((value, place) => `${x(ago[place]).toFixed(1)},${y(value).toFixed(1)}`);
      const first = x(ago[0]).toFixed(1);
      add(svg, "path", { class: "area", d: `M${first},${BOTTOM}L${points.join("L")}L${WIDTH},${BOTTOM}Z` });
      add(svg, "path", { class: "line", d: `M${points.join("L")}` });
    }
    const plot = figure.querySelector(".plot");
    const axis = document.createElement("div");
    axis.className = "axis";
    axis.setAttribute("aria-hidden", "true");
    for (const words of [text(end, unit), "5 min ago", "now"]) {
      const label = document.createElement("span");
      label.textContent = words;
      axis.append(label);
    }
    plot.replaceChildren(svg, axis);
  }

  async function poll() {
    let wait = 2000;
    if (!document.hidden) {
      try {
        const answer = await fetch(board.dataset.traffic, { cache: "no-store" });
        if (!answer.ok) throw new Error(answer.statusText);
        const traffic = await answer.json();
        wait = traffic.period_s * 1000;
        for (const figure of board.querySelectorAll("figure")) {
          draw(figure, traffic.ago_s, traffic[figure.dataset.series]);
        }
        board.classList.remove("stale");
      } catch {
        board.classList.add("stale");
      }
    }
    setTimeout(poll, wait);
  }

  poll();
})();
