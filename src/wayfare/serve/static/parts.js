// Parts that come when they are ready, and what can be done in them.
import { drawBoxes } from "./boxes.js";
import { part, post } from "./ask.js";

const show = (place, text) => {
  const page = new DOMParser().parseFromString(text, "text/html");
  place.replaceChildren(...page.body.childNodes);
  place.removeAttribute("aria-busy");
  fillParts(place);
};

export const fill = async (place, address, content) => {
  place.setAttribute("aria-busy", "true");
  try {
    show(place, await part(address, content));
  } catch {
    place.textContent = "The server cannot be reached.";
  }
};

const chooseRelation = (button) => {
  const box = button.closest("section, [data-graph]");
  const scene = box.querySelector("[data-scene]");
  const on = button.getAttribute("aria-pressed") !== "true";
  box.querySelectorAll(".sentence").forEach((each) => each.setAttribute("aria-pressed", "false"));
  button.setAttribute("aria-pressed", String(on));
  scene.classList.toggle("is-choosing", on);
  scene.querySelectorAll("[data-relation]").forEach((each) => {
    each.classList.toggle("is-on", each.dataset.relation === button.dataset.showRelation);
  });
};

// The same question once more, as a program asks it: the server still has the answer.
const offerGraph = async (link) => {
  const answer = await post("/api/v1/graph", JSON.parse(link.dataset.graphJson));
  link.href = URL.createObjectURL(new Blob([JSON.stringify(answer)], { type: "application/json" }));
  link.hidden = false;
};

const later = (place) => {
  place.querySelector("button").addEventListener("click", () => {
    const words = document.createElement("p");
    words.className = "working";
    words.textContent = "Working … a large data set takes a while.";
    place.replaceChildren(words);
    fill(place, place.dataset.partLater);
  });
};

export const fillParts = (root) => {
  root.querySelectorAll("[data-part]").forEach((place) => fill(place, place.dataset.part));
  root.querySelectorAll("[data-part-later]").forEach(later);
  root.querySelectorAll("[data-show-relation]").forEach((button) => {
    button.addEventListener("click", () => chooseRelation(button));
  });
  root.querySelectorAll("[data-graph-json]").forEach((link) => offerGraph(link).catch(() => { /* the page says it */ }));
  root.querySelectorAll("[data-boxes]").forEach(drawBoxes);
};
