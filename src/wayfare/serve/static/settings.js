// A recipe's settings as a form; choosing another part brings that part's settings.
import { element, get, post } from "./ask.js";

const OPEN = ["experiment", "strategy", "partition", "topology"];

const input = (field) => {
  const id = `set-${field.key}`, help = field.help || field.range ? `${id}-help` : null;
  const common = { id, name: field.key, "aria-describedby": help };
  if (field.kind === "choice") {
    return element("select", common, ...field.choices.map((choice) => element("option", { value: choice, selected: choice === field.value }, choice)));
  }
  if (field.kind === "flag") return element("input", { ...common, type: "checkbox", checked: field.value === true });
  const value = field.value === null ? "" : String(field.value);
  if (field.kind === "whole") return element("input", { ...common, type: "number", step: "1", min: field.low, max: field.high, value });
  if (field.kind === "number") return element("input", { ...common, type: "text", inputmode: "decimal", value });
  return element("input", { ...common, type: "text", value });
};

const said = (control) => control.type === "checkbox" ? String(control.checked) : control.value;

const row = (field) => {
  const control = input(field);
  control.dataset.before = said(control);
  const words = [field.help, field.range && `(${field.range})`].filter(Boolean).join(" ");
  const name = field.key.split(".").slice(1).join(".") || field.key;
  const label = field.kind === "flag" ? element("label", { for: control.id }, control, name) : element("label", { for: control.id }, name);
  const inner = field.kind === "flag" ? [label] : [label, control];
  if (words) inner.push(element("p", { class: "help", id: `${control.id}-help` }, words));
  if (field.switches) control.dataset.switches = "";
  return element("div", { class: "field" }, ...inner);
};

export const drawSettings = () => {
  const form = document.querySelector("[data-recipe]");
  if (!form) return;
  const recipe = form.dataset.recipe, place = form.querySelector("[data-form]"), start = form.querySelector("[data-start]");
  const problem = form.querySelector("[data-problem]"), changed = new Map();
  const complain = (text) => { problem.textContent = text; problem.hidden = !text; };

  const count = () => {
    form.querySelector("[data-changed]").textContent = changed.size ? `Changed: ${[...changed.keys()].join(", ")}` : "No setting changed.";
  };
  const mark = (control) => {
    const now = said(control);
    control.closest(".field").classList.toggle("is-changed", changed.has(control.name) || now !== control.dataset.before);
  };
  const load = async (focus) => {
    place.setAttribute("aria-busy", "true");
    try {
      const found = await post(`/api/v1/recipes/${recipe.split("/").map(encodeURIComponent).join("/")}/form`, { settings: Object.fromEntries(changed) });
      const keys = new Set(found.groups.flatMap((group) => group.fields.map((field) => field.key)));
      [...changed.keys()].filter((key) => !keys.has(key)).forEach((key) => changed.delete(key));
      place.replaceChildren(...found.groups.map((group) => {
        const fields = element("div", { class: "fields" }, ...group.fields.map(row));
        const isOpen = OPEN.includes(group.name) || group.fields.some((field) => changed.has(field.key));
        return element("section", {}, element("details", { open: isOpen }, element("summary", {}, group.title), fields));
      }));
      for (const [key, value] of changed) {
        const control = document.getElementById(`set-${key}`);
        if (control.type === "checkbox") control.checked = value === "true"; else control.value = value;
        mark(control);
      }
      complain("");
      start.disabled = false;
      if (focus) document.getElementById(focus)?.focus();
    } catch (error) { complain(error.message); }
    place.removeAttribute("aria-busy");
    count();
  };
  place.addEventListener("change", (event) => {
    const control = event.target;
    if (said(control) === control.dataset.before && !("switches" in control.dataset)) changed.delete(control.name);
    else changed.set(control.name, said(control));
    mark(control);
    count();
    if ("switches" in control.dataset) load(control.id);
  });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    complain("");
    start.disabled = true;
    const name = document.getElementById("run-name").value;
    try {
      await post("/api/v1/runs", { recipe, name, settings: Object.fromEntries(changed) });
      await begun(name);
    } catch (error) {
      complain(error.message);
      start.disabled = false;
    }
  });
  const begun = async (name) => {
    form.querySelector("[data-changed]").textContent = "Starting …";
    for (;;) {
      const found = await get(`/api/v1/starting/${encodeURIComponent(name)}`);
      if (found.id) { location.href = `/runs/${encodeURIComponent(found.id)}`; return; }
      if (!found.alive) throw new Error(found.log.trim().split("\n").slice(-3).join(" ") || "it ended before it began");
      await new Promise((next) => setTimeout(next, 700));
    }
  };
  load();
};
