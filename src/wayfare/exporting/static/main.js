// The page: it takes a photo or words, asks the worker, and draws what it answers. Text from files is only ever text.
import { classes, element, located, message, searched } from "./draw.js";

const waiting = new Map();
// A worker from a blob keeps this page's content policy: it cannot send anything anywhere either.
const source = new Blob([`import ${JSON.stringify(new URL("worker.js", import.meta.url).href)};`], { type: "text/javascript" });
const worker = new Worker(URL.createObjectURL(source), { type: "module" });
let count = 0;

export const ask = (kind, given = {}) => new Promise((resolve, reject) => {
  count += 1;
  waiting.set(count, { resolve, reject });
  worker.postMessage({ id: count, kind, given });
});
worker.addEventListener("message", ({ data }) => {
  const { resolve, reject } = waiting.get(data.id);
  waiting.delete(data.id);
  if (data.error !== undefined) reject(new Error(data.error));
  else resolve({ answer: data.answer, seconds: data.seconds });
});
worker.addEventListener("error", () => {
  waiting.forEach(({ reject }) => reject(new Error("This browser cannot run the model.")));
  waiting.clear();
});

const place = (id) => document.getElementById(id);
const say = (text) => { place("said").textContent = text; };
const busy = (text) => {
  place("working").hidden = !text;
  place("working-words").textContent = text;
  document.querySelectorAll("[data-pick], #words-go").forEach((button) => { button.disabled = Boolean(text); });
};

const pictureOf = (pack) => async (row) => {
  if (!pack) return null;
  const { answer } = await ask("picture", { ...pack, row });
  return answer && URL.createObjectURL(answer);
};

const card = (title, of, content, answer) => {
  const link = element("a", { download: "answer.json", href: URL.createObjectURL(new Blob([JSON.stringify(answer, null, 1)], { type: "application/json" })) }, "Download as JSON");
  return element("section", { class: "card-box" }, element("header", {}, element("h2", {}, title), element("p", { class: "eyebrow" }, of)), content, element("p", { class: "card-foot" }, link));
};

const asked = (site) => ({
  places: [["Where was it taken?", "locate", {}]],
  classes: [["What is in it?", "classify", {}]],
  search: Object.keys(site.search?.views ?? {}).map((find) => [find === "photos" ? "Similar photos" : "Texts that fit", "similar", { find }]),
}[site.kind]);

const drawn = async (site, kind, answer) => {
  if (kind === "locate") {
    const { answer: others } = await ask("near", { row: answer.places[0].matches[0].row, most: 4000 });
    return located(answer, site.places, others, pictureOf(site.places.pictures));
  }
  if (kind === "classify") return classes(answer);
  return searched(answer, pictureOf(site.search.views[answer.find].pictures));
};

const answerAll = async (site, questions, given) => {
  const box = place("answers");
  box.replaceChildren();
  for (const [title, kind, more] of questions) {
    try {
      const { answer } = await ask(kind, { ...given, ...more });
      box.append(card(title, site.title, await drawn(site, kind, answer), answer));
    } catch (error) {
      box.append(element("section", { class: "card-box" }, element("header", {}, element("h2", {}, title)), message(error.message)));
    }
  }
  box.dataset.done = String(Number(box.dataset.done ?? 0) + 1);
};

const show = async (site, file) => {
  busy("Looking at your photo …");
  try {
    const name = file.name || "photo";
    place("asked").hidden = false;
    place("asked").className = "asked";
    place("own-photo").replaceChildren(
      element("img", { src: URL.createObjectURL(file), alt: `Your photo, ${name}` }), element("h2", { class: "own-name" }, name),
      element("p", { class: "note" }, "It stays on this device: nothing was sent anywhere."));
    await answerAll(site, asked(site), { file, name, k: 5 });
    place("answers").focus();
  } finally {
    busy("");
  }
};

const find = async (site, words) => {
  busy("Searching …");
  try {
    place("asked").hidden = false;
    place("asked").className = "";
    place("own-photo").replaceChildren();
    const view = "photos" in site.search.views ? "photos" : "texts";
    await answerAll(site, [[`${view === "photos" ? "Photos" : "Texts"} for “${words}”`, "words", { words, find: view, k: 10 }]], {});
    place("answers").focus();
  } finally {
    busy("");
  }
};

const listen = (site) => {
  const drop = place("drop");
  const take = (file) => { if (file) show(site, file).catch((error) => say(error.message)); };
  if (drop) {
    document.querySelectorAll("[data-pick]").forEach((button) => {
      const input = place(button.dataset.pick);
      button.addEventListener("click", () => input.click());
      input.addEventListener("change", () => { take(input.files[0]); input.value = ""; });
    });
    addEventListener("dragover", (event) => { event.preventDefault(); drop.classList.add("is-over"); });
    addEventListener("dragleave", (event) => { if (!event.relatedTarget) drop.classList.remove("is-over"); });
    addEventListener("drop", (event) => {
      event.preventDefault();
      drop.classList.remove("is-over");
      if (event.dataTransfer.files[0]) take(event.dataTransfer.files[0]);
      else say("That was no file. Save the picture first, then drop it here.");
    });
    addEventListener("paste", (event) => take([...event.clipboardData.files][0]));
  }
  place("words-form")?.addEventListener("submit", (event) => {
    event.preventDefault();
    find(site, place("words").value).catch((error) => say(error.message));
  });
};

const begin = async () => {
  busy("Loading the model …");
  try {
    const { answer: site } = await ask("ready");
    listen(site);
    busy("");
    document.body.dataset.ready = "true";
  } catch (error) {
    busy("");
    place("answers").replaceChildren(message(`The model cannot be loaded: ${error.message}`));
    place("asked").hidden = false;
  }
};

begin();
globalThis.wayfare = { ask }; // for tests and for the curious
if ("serviceWorker" in navigator) navigator.serviceWorker.register("sw.js").catch(() => { /* then it needs the server */ });
