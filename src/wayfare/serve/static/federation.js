// Inviting and revoking nodes.
import { post, say } from "./ask.js";

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

export const watchFederation = () => {
  document.querySelectorAll("[data-federation]").forEach((root) => {
    const address = `/api/v1/federations/${encodeURIComponent(root.dataset.federation)}`;
    root.querySelector("[data-invite]").addEventListener("submit", async (event) => {
      event.preventDefault();
      const given = new FormData(event.target);
      const content = { name: given.get("name"), server: given.get("server"), days: Number(given.get("days")) };
      try { show(root, await post(`${address}/invite`, content), content.server); } catch (error) { say(error.message); }
    });
    root.querySelectorAll("[data-revoke]").forEach((button) => button.addEventListener("click", async () => {
      if (!confirm(`Refuse ${button.dataset.revoke} from now on? It needs a new invitation to come back.`)) return;
      try {
        await post(`${address}/revoke`, { name: button.dataset.revoke });
        location.reload();
      } catch (error) { say(error.message); }
    }));
  });
};
