// The nodes of federations as they come and go; inviting and revoking them.
import { post, say } from "./ask.js";
import { listen } from "./runs.js";

const show = (root, made, server) => {
  const place = root.querySelector("[data-invitation]"), code = root.querySelector("[data-code]");
  const save = root.querySelector("[data-save]");
  save.href = URL.createObjectURL(new Blob([made.text], { type: "text/plain" }));
  save.download = made.file;
  code.hidden = !made.qr;
  root.querySelector("[data-no-code]").hidden = Boolean(made.qr);
  if (made.qr) code.src = URL.createObjectURL(new Blob([made.qr], { type: "image/svg+xml" }));
  root.querySelector("[data-join]").textContent = `wayfare federate join ${made.file} --photos DIR`;
  place.hidden = false;
  save.focus();
  say(`Invited to ${server}.`);
};

const revoke = async (button) => {
  if (!confirm(`Refuse ${button.dataset.revoke} from now on? It needs a new invitation to come back.`)) return;
  const id = button.closest("[data-federation]").dataset.federation;
  try {
    await post(`/api/v1/federations/${encodeURIComponent(id)}/revoke`, { name: button.dataset.revoke });
    await refresh();
    say(`${button.dataset.revoke} is refused from now on.`);
  } catch (error) { say(error.message); }
};

// The tables are drawn by the server; what somebody types beside them stays.
const refresh = async () => {
  const response = await fetch(location.href);
  if (!response.ok) return;
  const page = new DOMParser().parseFromString(await response.text(), "text/html");
  document.querySelectorAll("[data-fresh]").forEach((place) => {
    const found = page.querySelector(`[data-fresh="${CSS.escape(place.dataset.fresh)}"]`);
    const held = place.contains(document.activeElement) ? document.activeElement.dataset.revoke : undefined;
    if (!found || found.innerHTML === place.innerHTML) return;
    place.replaceChildren(...found.childNodes);
    if (held) place.querySelector(`[data-revoke="${CSS.escape(held)}"]`)?.focus();
  });
};

const later = () => {
  if (later.timer) return;
  later.timer = setTimeout(() => { later.timer = 0; refresh().catch(() => { /* the server is gone for now */ }); }, 1000);
};

export const watchFederation = () => {
  const page = document.querySelector("[data-live=federation]");
  if (!page) return;
  listen(later);
  page.addEventListener("click", (event) => {
    const button = event.target.closest("[data-revoke]");
    if (button) revoke(button);
  });
  document.querySelectorAll("[data-federation]").forEach((root) => {
    const address = `/api/v1/federations/${encodeURIComponent(root.dataset.federation)}`;
    root.querySelector("[data-invite]").addEventListener("submit", async (event) => {
      event.preventDefault();
      const given = new FormData(event.target);
      const content = { name: given.get("name"), server: given.get("server"), days: Number(given.get("days")) };
      try {
        show(root, await post(`${address}/invite`, content), content.server);
        await refresh();
      } catch (error) { say(error.message); }
    });
  });
};
