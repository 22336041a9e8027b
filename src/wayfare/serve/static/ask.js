// Asking the server, and saying what went wrong.
const csrf = () => document.querySelector("meta[name=csrf]").content;

export const say = (text) => {
  const line = document.getElementById("said");
  line.textContent = text;
  clearTimeout(say.timer);
  say.timer = setTimeout(() => { line.textContent = ""; }, 6000);
};

const answered = async (response) => {
  if (response.ok) return response;
  const text = await response.text();
  let reason = text;
  try { reason = JSON.parse(text).error; } catch { /* it is not JSON */ }
  throw new Error(reason || `the server answered ${response.status}`);
};

export const get = async (address) => (await answered(await fetch(address))).json();

export const post = async (address, content) => (await answered(await fetch(address, {
  method: "POST",
  headers: { "X-CSRF-Token": csrf(), "Content-Type": "application/json" },
  body: JSON.stringify(content),
}))).json();

export const send = async (address, body, type) => (await answered(await fetch(address, {
  method: "POST", headers: { "X-CSRF-Token": csrf(), "Content-Type": type }, body,
}))).json();

// A part of a page as the server drew it; errors are drawn by the server too.
export const part = async (address, content) => {
  const options = content === undefined ? {} : {
    method: "POST",
    headers: { "X-CSRF-Token": csrf(), "Content-Type": "application/json" },
    body: JSON.stringify(content),
  };
  const response = await fetch(address, options);
  return response.text();
};

export const element = (name, attributes = {}, ...inner) => {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...inner);
  return made;
};

export const drawn = (name, attributes = {}, ...inner) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...inner);
  return made;
};
