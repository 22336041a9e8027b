// Boxes around the things in a photo: drawn with a finger or a mouse, or typed as numbers.
import { drawn, element } from "./ask.js";
import { fill } from "./parts.js";

// The address has the boxes, so that the link that is copied gives this graph again.
const withBoxes = (boxes) => {
  const asked = new URLSearchParams(location.search);
  asked.set("boxes", JSON.stringify(boxes.map(({ label, box }) => [label, ...box])));
  return asked;
};

const linked = () => {
  try {
    const found = JSON.parse(new URLSearchParams(location.search).get("boxes") ?? "[]");
    return found.slice(0, 100).map(([label, ...box]) => ({ label: String(label), box: box.slice(0, 4).map(Number) }))
      .filter(({ box }) => box.length === 4 && box.every(Number.isFinite));
  } catch { return []; }
};

export const drawBoxes = (root) => {
  const scene = root.querySelector("svg");
  const list = root.querySelector(".box-list");
  const ready = root.querySelector("[data-draw-graph]");
  const size = [Number(root.dataset.width), Number(root.dataset.height)];
  const boxes = [];

  const place = (box) => {
    const [x1, y1, x2, y2] = box.sides;
    const shape = { x: Math.min(x1, x2), y: Math.min(y1, y2), width: Math.abs(x2 - x1), height: Math.abs(y2 - y1) };
    Object.entries(shape).forEach(([key, value]) => box.shape.setAttribute(key, value));
  };
  const check = () => {
    ready.disabled = boxes.filter((box) => box.label.value.trim()).length < 2;
  };
  const add = (sides) => {
    const number = boxes.length;
    const shape = drawn("rect", { class: `thing s${(number % 12) + 1}`, "stroke-width": Math.max(...size) / 220 });
    scene.append(shape);
    const label = element("input", {
      type: "text", list: `classes-${root.dataset.run}`, placeholder: "what is it?", "aria-label": `What is in box ${number + 1}`,
    });
    const box = { sides, shape, label };
    const fields = ["left", "top", "right", "bottom"].map((side, at) => {
      const field = element("input", {
        type: "number", min: 0, max: size[at % 2], value: Math.round(sides[at]), "aria-label": `Box ${number + 1}, ${side}`,
      });
      field.addEventListener("input", () => { box.sides[at] = Number(field.value); place(box); });
      return field;
    });
    const remove = element("button", { type: "button", class: "danger", "aria-label": `Remove box ${number + 1}` }, "Remove");
    const row = element("li", {}, label, ...fields, remove);
    remove.addEventListener("click", () => {
      boxes.splice(boxes.indexOf(box), 1);
      shape.remove();
      row.remove();
      check();
    });
    label.addEventListener("input", check);
    box.fields = fields;
    boxes.push(box);
    list.append(row);
    place(box);
    return box;
  };
  const at = (event) => {
    const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(scene.getScreenCTM().inverse());
    return [Math.min(Math.max(point.x, 0), size[0]), Math.min(Math.max(point.y, 0), size[1])];
  };
  let drawing = null;
  scene.addEventListener("pointerdown", (event) => {
    scene.setPointerCapture(event.pointerId);
    const [x, y] = at(event);
    drawing = add([x, y, x, y]);
    event.preventDefault();
  });
  scene.addEventListener("pointermove", (event) => {
    if (!drawing) return;
    [drawing.sides[2], drawing.sides[3]] = at(event);
    place(drawing);
  });
  scene.addEventListener("pointerup", () => {
    if (!drawing) return;
    const [x1, y1, x2, y2] = drawing.sides;
    drawing.sides = [Math.min(x1, x2), Math.min(y1, y2), Math.max(x1, x2), Math.max(y1, y2)].map(Math.round);
    drawing.fields.forEach((field, side) => { field.value = drawing.sides[side]; });
    drawing.label.focus();
    drawing = null;
  });
  root.querySelector("[data-add-box]").addEventListener("click", () => {
    add([size[0] / 4, size[1] / 4, size[0] / 2, size[1] / 2]).label.focus();
  });
  ready.addEventListener("click", () => {
    const given = boxes.filter((box) => box.label.value.trim()).map((box) => {
      const [x1, y1, x2, y2] = box.sides;
      const sides = [Math.min(x1, x2), Math.min(y1, y2), Math.max(x1, x2), Math.max(y1, y2)];
      return { label: box.label.value.trim(), box: sides };
    });
    history.replaceState(null, "", `?${withBoxes(given)}`);
    fill(root.querySelector("[data-graph]"), "/part/graph", { run: root.dataset.run, photo: root.dataset.photo, boxes: given });
  });
  linked().forEach(({ label, box }) => { add(box).label.value = label; });
  check();
  if (!ready.disabled) ready.click();
};
