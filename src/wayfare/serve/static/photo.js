// A photo that is dropped, pasted, chosen or taken: send it, then go to its page.
import { post, say, send } from "./ask.js";

const chosen = () => {
  const boxes = [...document.querySelectorAll("input[name=on]")];
  const on = boxes.filter((box) => box.checked);
  return boxes.every((box) => box.checked === box.defaultChecked) ? "" : "?" + on.map((box) => "on=" + encodeURIComponent(box.value)).join("&");
};

const busy = (on) => {
  document.getElementById("working").hidden = !on;
  document.querySelectorAll("[data-pick], [data-sample]").forEach((button) => { button.disabled = on; });
};

const go = async (asking) => {
  busy(true);
  try {
    location.href = `/photo/${(await asking()).photo}${chosen()}`;
  } catch (error) {
    busy(false);
    say(error.message);
  }
};

const take = (file) => {
  if (!file) return;
  go(() => send(`/api/v1/photos?name=${encodeURIComponent(file.name || "photo")}`, file, file.type || "image/*"));
};

export const watchPhotos = () => {
  document.querySelectorAll("[data-copy-link]").forEach((button) => button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(location.href);
      say("Copied. The link opens in this browser until the server ends.");
    } catch { say(location.href); }
  }));
  const drop = document.getElementById("drop");
  if (!drop) return;
  addEventListener("pageshow", () => busy(false));
  document.querySelectorAll("[data-pick]").forEach((button) => {
    const input = document.getElementById(button.dataset.pick);
    button.addEventListener("click", () => input.click());
    input.addEventListener("change", () => { take(input.files[0]); input.value = ""; });
  });
  addEventListener("dragover", (event) => { event.preventDefault(); drop.classList.add("is-over"); });
  addEventListener("dragleave", (event) => { if (!event.relatedTarget) drop.classList.remove("is-over"); });
  addEventListener("drop", (event) => {
    event.preventDefault();
    drop.classList.remove("is-over");
    const file = event.dataTransfer.files[0];
    if (file) take(file); else say("That was no file. Save the picture first, then drop it here.");
  });
  addEventListener("paste", (event) => take([...event.clipboardData.files][0]));
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-sample]");
    if (button) go(() => post(`/part/samples/${button.dataset.sample}`, {}));
  });
};
