// Draws every figure, and again when the axis, the legend or the colour scheme changes.
"use strict";
(() => {
  const specs = JSON.parse(document.getElementById("figure-data").textContent);
  const plots = [...document.querySelectorAll(".plot")];
  const palette = () => getComputedStyle(document.documentElement);

  const colour = (token, style) => {
    const [name, alpha] = token.slice(1).split("/");
    if (name === "clear") return "rgba(0,0,0,0)";
    const hex = style.getPropertyValue("--" + name).trim();
    if (alpha === undefined) return hex;
    const part = (at) => parseInt(hex.slice(at, at + 2), 16);
    return `rgba(${part(1)},${part(3)},${part(5)},${alpha})`;
  };

  // Only under keys that hold a colour, so that no name from outside is taken for a token.
  const paint = (value, key, style) => {
    if (Array.isArray(value)) return value.map((item) => paint(item, key, style));
    if (value !== null && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, paint(item, name, style)]));
    }
    const token = typeof value === "string" && value[0] === "@" && /color$|colorscale$/.test(key);
    return token ? colour(value, style) : value;
  };

  const draw = (plot) => {
    const section = plot.closest("section");
    const spec = paint(specs[plot.id], "", palette());
    const chosen = section.querySelector("input[type=radio]:checked");
    if (spec.over && chosen) {
      const over = spec.over[chosen.value];
      spec.data.forEach((trace, at) => { trace.x = over.x[at]; });
      spec.layout.xaxis.title.text = over.title;
    }
    const off = new Set([...section.querySelectorAll("button[aria-pressed=false]")].map((b) => b.dataset.group));
    spec.data.forEach((trace) => { trace.visible = !off.has(trace.legendgroup); });
    spec.layout.height = plot.clientHeight;
    Plotly.react(plot, spec.data, spec.layout, { displayModeBar: false, responsive: true, doubleClick: false });
  };

  const within = (element) => plots.filter((plot) => element.closest("section").contains(plot));
  document.querySelectorAll("input[type=radio]").forEach((input) => {
    input.addEventListener("change", () => within(input).forEach(draw));
  });
  document.querySelectorAll("button[data-group]").forEach((button) => {
    button.addEventListener("click", () => {
      button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") === "false"));
      within(button).forEach(draw);
    });
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => plots.forEach(draw));
  plots.forEach(draw);
  document.documentElement.dataset.drawn = String(plots.length);
})();
