// Runs as they go on: a list, one run, several side by side. Changes come by server-sent events.
import { element, get, post, say } from "./ask.js";
import { bytes, chart, points, short, sparkline } from "./chart.js";

const text = (root, name, value) => root.querySelectorAll(`[data-${name}]`).forEach((each) => { each.textContent = value; });

const seconds = (count) => {
  if (count < 60) return `${count.toFixed(1)} s`;
  const whole = Math.round(count);
  return whole < 3600 ? `${Math.floor(whole / 60)} min ${String(whole % 60).padStart(2, "0")} s`
    : `${Math.floor(whole / 3600)} h ${String(Math.floor(whole / 60) % 60).padStart(2, "0")} min`;
};

const showState = (chip, state) => {
  chip.className = `chip state-${state}`;
  chip.textContent = state;
};

const showRow = (root, row) => {
  const bar = root.querySelector("progress");
  bar.value = row.done;
  bar.max = row.total || 1;
  text(root, "rounds", `${row.done} of ${row.total} rounds`);
  text(root, "value", short(row.value));
  text(root, "metric", row.metric);
  text(root, "bytes", bytes(row.bytes));
  text(root, "refused", String(row.refused));
  text(root, "seconds", seconds(row.seconds));
  text(root, "epsilon", short(row.epsilon));
  root.querySelectorAll("[data-epsilon-tile]").forEach((tile) => { tile.hidden = row.epsilon === null; });
  const facts = [`${bytes(row.bytes)} sent`];
  if (row.refused) facts.push(`${row.refused} refused`);
  if (row.epsilon !== null) facts.push(`ε ${short(row.epsilon)}`);
  text(root, "facts", facts.join(" · "));
};

export const listen = (hear) => {
  const source = new EventSource("/api/v1/events");
  source.addEventListener("run", (event) => hear(JSON.parse(event.data)));
  addEventListener("pagehide", () => source.close());
};

const watchList = (list) => {
  const compare = document.getElementById("compare");
  const ticked = () => [...list.querySelectorAll("input:checked")].map((box) => box.value);
  list.addEventListener("change", () => { compare.disabled = ticked().length < 2; });
  compare.addEventListener("click", () => {
    location.href = "/compare?" + ticked().map((id) => "run=" + encodeURIComponent(id)).join("&");
  });
  compare.disabled = ticked().length < 2;
  list.querySelectorAll("[data-curve]").forEach(sparkline);
  listen((row) => {
    const line = list.querySelector(`[data-run="${CSS.escape(row.id)}"]`);
    if (!line) { location.reload(); return; }
    showState(line.querySelector(".chip"), row.state);
    showRow(line, row);
    const curve = line.querySelector("[data-curve]");
    curve.dataset.curve = row.curve.join(",");
    sparkline(curve);
  });
};

const choices = (select, names, again) => {
  const before = select.value;
  select.replaceChildren(...names.map((name) => element("option", { value: name }, name)));
  if (names.includes(before)) select.value = before;
  select.onchange = again;
};

const metricsOf = (runs) => {
  const names = new Set(runs.flatMap((run) => Object.keys(run.metrics)));
  return [...names].filter((name) => runs.some((run) => run.rounds.some((line) => typeof line.metrics[name] === "number")));
};

const drawCurves = (place, runs) => {
  const select = document.querySelector("[data-metric-choice]"), axis = document.querySelector("[data-axis-choice]");
  const draw = () => {
    const lines = runs.map((run) => ({ name: run.name, points: points(run, select.value, axis.value) }));
    chart(place, lines.filter((line) => line.points.length), axis.value, `${select.value} by ${axis.value}`);
  };
  choices(select, metricsOf(runs), draw);
  axis.onchange = draw;
  onresize = draw;
  draw();
};

const table = (heads, rows) => element("table", {},
  element("thead", {}, element("tr", {}, ...heads.map((head) => element("th", { scope: "col" }, head)))),
  element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map((cell) => element("td", {}, cell))))));

const watchRun = async (root) => {
  const id = root.dataset.run, actions = document.querySelector("[data-actions]");
  const load = async () => {
    const run = await get(`/api/v1/runs/${encodeURIComponent(id)}`);
    drawCurves(root.querySelector("[data-chart]"), [run]);
    const names = metricsOf([run]).slice(0, 8);
    root.querySelector("[data-numbers]").replaceChildren(table(
      ["round", ...names, "clients", "up", "down", "refused", "time"],
      run.rounds.map((line) => [String(line.round), ...names.map((name) => short(line.metrics[name])), String(line.clients),
        bytes(line.bytes_up), bytes(line.bytes_down), String(line.refused), seconds(line.seconds)]),
    ));
    root.querySelector("[data-refusals]").hidden = !run.refusals.length;
    root.querySelector("[data-refusal-table]").replaceChildren(table(["round", "device", "reason"],
      run.refusals.map((each) => [String(each.round), each.device, each.reason])));
  };
  const show = (row) => {
    if (document.querySelector("[data-state]").textContent !== row.state) say("");  // what was said has happened
    showState(document.querySelector("[data-state]"), row.state);
    showRow(root, row);
    const wanted = { stop: "running", resume: "stopped", extend: "finished" };
    actions.querySelectorAll("[data-act]").forEach((button) => { button.hidden = row.state !== wanted[button.dataset.act]; });
  };
  const act = async (what, content) => {
    try {
      await post(`/api/v1/runs/${encodeURIComponent(id)}/${what}`, content);
      say(what === "stop" ? "It stops after this round …" : "It goes on …");
    } catch (error) { say(error.message); }
  };
  const form = document.querySelector("[data-extend]");
  actions.addEventListener("click", (event) => {
    const what = event.target.dataset.act;
    if (what === "stop") act("stop", {});
    if (what === "resume") act("resume", {});
    if (what === "extend") { form.hidden = !form.hidden; form.querySelector("input").focus(); }
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    form.hidden = true;
    act("resume", { rounds: Number(form.querySelector("input").value) });
  });
  await load();
  listen((row) => {
    if (row.id !== id) return;
    show(row);
    load();
  });
};

const showCompared = async (place) => {
  const ids = place.dataset.compare.split(",");
  drawCurves(place, await Promise.all(ids.map((id) => get(`/api/v1/runs/${encodeURIComponent(id)}`))));
};

export const watchRuns = () => {
  const list = document.querySelector("[data-live=runs]"), one = document.querySelector("[data-live=run]");
  const several = document.querySelector("[data-compare]");
  if (list) watchList(list);
  if (one) watchRun(one);
  if (several) showCompared(several);
};
