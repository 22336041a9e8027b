// A line chart: one line for each run, over rounds or bytes, read out under the pointer or with the arrow keys.
import { drawn, element } from "./ask.js";

const HIGH = 300, LEFT = 62, RIGHT = 16, TOP = 12, BOTTOM = 34;

export const short = (value) => {
  if (value === null || value === undefined) return "–";
  if (Number.isInteger(value)) return value.toLocaleString("en");
  return Math.abs(value) >= 1000 ? Math.round(value).toLocaleString("en") : Number(value.toPrecision(4)).toString();
};

export const bytes = (count) => {
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (Math.abs(count) < 999.5) return unit === "B" ? `${Math.round(count)} B` : `${Number(count.toPrecision(3))} ${unit}`;
    count /= 1000;
  }
  return `${Number(count.toPrecision(3))} TB`;
};

const steps = (low, high) => {
  const raw = (high - low || 1) / 5, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((each) => each * power).find((each) => each >= raw);
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-6; value += step) found.push(value);
  return found;
};

export const points = (run, metric, axis) => {
  let sent = 0;
  const found = [];
  for (const line of run.rounds) {
    sent += line.bytes_up + line.bytes_down;
    const value = line.metrics[metric];
    if (typeof value === "number") found.push([axis === "bytes" ? sent : line.round, value]);
  }
  return found;
};

export const chart = (place, lines, axis, words) => {
  const WIDE = Math.max(280, place.clientWidth || 860);
  const all = lines.flatMap((line) => line.points);
  if (!all.length) {
    place.replaceChildren(element("p", { class: "empty" }, "Nothing has been measured yet."));
    return;
  }
  const [xs, ys] = [all.map((point) => point[0]), all.map((point) => point[1])];
  const [x0, x1] = [Math.min(...xs), Math.max(...xs)];
  let [y0, y1] = [Math.min(...ys), Math.max(...ys)];
  if (y0 === y1) { y0 -= Math.abs(y0) * 0.1 || 0.5; y1 += Math.abs(y1) * 0.1 || 0.5; }
  const right = (x) => LEFT + (x1 === x0 ? 0.5 : (x - x0) / (x1 - x0)) * (WIDE - LEFT - RIGHT);
  const down = (y) => TOP + (1 - (y - y0) / (y1 - y0)) * (HIGH - TOP - BOTTOM);
  const svg = drawn("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img", tabindex: "0", "aria-label": words });
  for (const y of steps(y0, y1)) {
    svg.append(drawn("path", { d: `M${LEFT} ${down(y)}H${WIDE - RIGHT}`, class: "grid" }));
    svg.append(drawn("text", { x: LEFT - 8, y: down(y) + 4, "text-anchor": "end" }, short(y)));
  }
  for (const x of steps(x0, x1)) {
    if (axis !== "bytes" && !Number.isInteger(x)) continue;
    if (WIDE < 500 && axis === "bytes" && steps(x0, x1).indexOf(x) % 2) continue;
    svg.append(drawn("text", { x: right(x), y: HIGH - 12, "text-anchor": "middle" }, axis === "bytes" ? bytes(x) : short(x)));
  }
  lines.forEach((line, at) => {
    const colour = (at % 8) + 1;
    const path = line.points.map(([x, y], index) => `${index ? "L" : "M"}${right(x).toFixed(1)} ${down(y).toFixed(1)}`).join("");
    svg.append(drawn("path", { d: path, class: `line l${colour}` }));
    if (line.points.length < 40) {
      line.points.forEach(([x, y]) => svg.append(drawn("circle", { cx: right(x), cy: down(y), r: 3, class: `d${colour}` })));
    }
  });
  const reading = element("p", { class: "reading", "aria-live": "polite" });
  const marker = drawn("path", { class: "grid" });
  svg.append(marker);
  const known = [...new Set(xs)].sort((a, b) => a - b);
  let current = known.length - 1;
  const read = () => {
    const x = known[current];
    marker.setAttribute("d", `M${right(x)} ${TOP}V${HIGH - BOTTOM}`);
    const values = lines.map((line) => {
      const point = line.points.find((each) => each[0] === x);
      return point ? `${lines.length > 1 ? line.name + " " : ""}${short(point[1])}` : "";
    }).filter(Boolean);
    reading.textContent = `${axis === "bytes" ? bytes(x) : "round " + x}: ${values.join(" · ")}`;
  };
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect(), x = (event.clientX - box.left) / box.width * WIDE;
    current = known.reduce((best, each, at) => Math.abs(right(each) - x) < Math.abs(right(known[best]) - x) ? at : best, 0);
    read();
  });
  svg.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    current = Math.min(Math.max(current + step, 0), known.length - 1);
    read();
    event.preventDefault();
  });
  const keys = element("p", { class: "keys" }, ...(lines.length > 1 ? lines.map((line, at) => {
    const swatch = element("i", { class: `swatch c${(at % 8) + 1}` });
    return element("span", {}, swatch, line.name);
  }) : []));
  place.replaceChildren(svg, reading, keys);
  read();
};

export const sparkline = (place) => {
  const values = place.dataset.curve.split(",").filter(Boolean).map(Number);
  if (values.length < 2) return;
  const low = Math.min(...values), span = Math.max(...values) - low || 1;
  const path = values.map((value, at) => `${at ? "L" : "M"}${(at / (values.length - 1) * 100).toFixed(1)} ${(30 - (value - low) / span * 26).toFixed(1)}`).join("");
  place.replaceChildren(drawn("svg", { viewBox: "0 0 100 32", preserveAspectRatio: "none" }, drawn("path", { d: path, class: "curve" })));
};
