// Answers as parts of the page. Every name, text and label goes through `append`: it is text, whatever is in it.
export const element = (name, attributes = {}, ...inner) => {
  const made = document.createElement(name);
  Object.entries(attributes).forEach(([key, value]) => made.setAttribute(key, value));
  made.append(...inner);
  return made;
};

const svg = (name, attributes = {}, ...inner) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  Object.entries(attributes).forEach(([key, value]) => made.setAttribute(key, value));
  made.append(...inner);
  return made;
};

const percent = (share) => {
  if (share > 0.99) return "over 99 %";
  return share < 0.01 ? "under 1 %" : `${Math.round(100 * share)} %`;
};
const number = (value, digits = 0) => value.toLocaleString("en", { maximumFractionDigits: digits });
const several = (count, word) => `${number(count)} ${word}${count === 1 ? "" : "s"}`;
export const message = (text) => element("p", { class: "odd" }, text);

const meter = (share, words, line = null) => svg("svg", { viewBox: "0 0 100 6", preserveAspectRatio: "none", role: "img", "aria-label": words, class: "meter" },
  svg("rect", { width: 100, height: 6, class: "meter-ground" }),
  svg("rect", { width: (100 * Math.min(Math.max(share, 0), 1)).toFixed(1), height: 6, class: "meter-value" }),
  ...(line === null ? [] : [svg("rect", { x: (100 * line).toFixed(1), width: 0.7, height: 6, class: "meter-line" })]));

const shown = async (row, pictureOf, words) => {
  const address = await pictureOf(row);
  return address ? element("img", { src: address, alt: words }) : element("span", { class: "lost" }, "no picture");
};

const away = (metres) => {
  if (metres === null) return "in another city";
  return metres < 10_000 ? `${number(metres)} m away` : `${number(metres / 1000)} km away`;
};

const spotText = ({ latitude, longitude, easting, northing, city, zone }) => {
  if (latitude !== null && longitude !== null) {
    const [north, east] = [latitude < 0 ? "S" : "N", longitude < 0 ? "W" : "E"];
    return `${city ? `${city}: ` : ""}${Math.abs(latitude).toFixed(5)}° ${north}, ${Math.abs(longitude).toFixed(5)}° ${east}`;
  }
  return [`easting ${number(easting ?? 0)}`, `northing ${number(northing ?? 0)}`, city, zone].filter(Boolean).join(", ");
};

// ---- where a photo was taken

const verdict = (answer, facts) => {
  const { unknown, confidence } = answer, threshold = facts.threshold ?? null;
  if (unknown) {
    return [element("b", {}, "I do not know."), `The nearest photos are below, but the first place is right with a chance of only ${percent(confidence)}.`];
  }
  if (confidence === null) return [element("b", {}, "Place 1 is the most similar."), `Its confidence is not known: ${facts.uncalibrated || "this index was not calibrated"}.`];
  if (threshold === null) {
    return [element("b", {}, "A guess: place 1."), `It is right with a chance of ${percent(confidence)}. This index is right too seldom to set a threshold for answers.`];
  }
  return [element("b", {}, "Here"), `The place is right with ${percent(confidence)} confidence.`];
};

const WIDE = 480, HIGH = 330, MARGIN = 22, LEAST = 30;

const map = (answer, others) => {
  const middle = answer.position, { zone, city } = answer.places[0];
  const from = ({ easting, northing }) => [easting - middle.easting, northing - middle.northing];
  const near = answer.places.map((found, at) => ({ number: at + 1, of: found })).filter(({ of }) => of.zone === zone && of.city === city)
    .map(({ number: which, of }) => ({ which, points: of.matches.map(from) }));
  const points = [[0, 0], ...near.flatMap((each) => each.points)];
  const [xs, ys] = [0, 1].map((axis) => points.map((point) => point[axis]));
  const [west, east, south, north] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const scale = (HIGH / 2 - MARGIN) / Math.max(LEAST, (north - south) / 2, ((east - west) / 2) * (HIGH / WIDE));
  const at = ([x, y]) => [WIDE / 2 + scale * (x - (west + east) / 2), HIGH / 2 - scale * (y - (south + north) / 2)];
  const dot = (point, radius, kind) => svg("circle", { cx: point[0].toFixed(1), cy: point[1].toFixed(1), r: radius, class: kind });
  const inside = others.map(([x, y]) => at([x - middle.easting, y - middle.northing])).filter(([x, y]) => x >= 0 && x <= WIDE && y >= 0 && y <= HIGH);
  const colour = (which) => ((which - 1) % 6) + 1;
  const pins = near.toReversed().map(({ which, points: [first] }) => {
    const [x, y] = at(first);
    return svg("g", { class: "map-pin" }, dot([x, y], 11, `p${colour(which)}`), svg("text", { x: x.toFixed(1), y: (y + 4).toFixed(1) }, String(which)));
  });
  const [x, y] = at([0, 0]);
  const cross = [[x - 19, y, "h8"], [x + 11, y, "h8"], [x, y - 19, "v8"], [x, y + 11, "v8"]].map(([a, b, line]) => `M${a.toFixed(1)} ${b.toFixed(1)}${line}`).join("");
  const most = WIDE / 5 / scale, power = 10 ** Math.floor(Math.log10(most));
  const length = Math.max(...[1, 2, 5].map((step) => step * power).filter((step) => step <= most));
  return svg("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img", class: "sketch", "aria-label": `Map: the position as a cross, ${several(near.length, "place")} by number, other photos of the index in grey` },
    svg("rect", { width: WIDE, height: HIGH, class: "ground" }), ...inside.map((point) => dot(point, 2.2, "other")),
    ...near.flatMap(({ which, points: each }) => each.map((point) => dot(at(point), 3.4, `p${colour(which)}`))), ...pins,
    svg("path", { d: cross, class: "cross" }), svg("path", { d: `M12 ${HIGH - 17}v5H${(12 + scale * length).toFixed(1)}v-5`, class: "scale-bar" }),
    svg("text", { x: 12, y: HIGH - 21, class: "scale-text" }, length < 1000 ? `${length} m` : `${length / 1000} km`));
};

export const located = async (answer, facts, others, pictureOf) => {
  const { confidence, unknown, position } = answer, threshold = facts.threshold ?? null;
  const [first, then] = verdict(answer, facts);
  const box = element("div", { class: `verdict-box${unknown || (threshold === null && confidence !== null) ? " is-unknown" : ""}` },
    element("p", { class: "verdict-line" }, first), element("p", {}, then));
  if (confidence !== null) {
    box.append(meter(confidence, `Confidence ${percent(confidence)}`, threshold));
    if (threshold !== null) box.append(element("p", { class: "note" }, `Answers count from ${percent(threshold)} on (the line).`));
  }
  const where = element("p", { class: "where" }, unknown ? "If it were there: " : "", element("b", {}, spotText(position)));
  if (position.latitude !== null) where.append(" ", element("a", { href: `geo:${position.latitude.toFixed(6)},${position.longitude.toFixed(6)}` }, "open in a map app"));
  box.append(where, element("p", { class: "note" }, position.photos === 1 ? "The position of the nearest photo."
    : `The mean of ${position.photos} photos that agree, ${number(position.spread_m, 1)} m from each other.`));
  const strip = await Promise.all(answer.places.map(async (found, at) => element("li", {}, element("figure", {},
    await shown(found.matches[0].row, pictureOf, `Photo of the index at place ${at + 1}`),
    element("figcaption", {}, element("span", { class: `pin p${(at % 6) + 1}` }, String(at + 1)), ` ${at ? away(found.metres) : "nearest"}`,
      element("small", {}, found.matches[0].file))))));
  const doubts = (facts.doubts ?? []).map((doubt) => element("p", { class: "note" }, `About the confidence: ${doubt}`));
  return element("div", {}, box, map(answer, others), element("h3", {}, unknown ? "The most similar photos" : "Matching photos"), element("ul", { class: "strip" }, ...strip), ...doubts);
};

// ---- what is found, and what is seen

export const searched = async (answer, pictureOf) => {
  const notes = Object.entries(answer.read_as).map(([word, known]) => message(`“${word}” was read as “${known}”.`));
  if (answer.unknown_words.length) notes.push(message(`Not known, and left out: ${answer.unknown_words.join(", ")}.`));
  if (!answer.close) notes.push(message("Nothing here is close to it. These are the nearest."));
  const items = await Promise.all(answer.results.map(async (hit) => {
    const words = answer.find === "texts" ? hit.texts[0] ?? hit.name : hit.texts.join(" · ") || hit.name;
    const score = meter((1 + hit.score) / 2, `Score ${hit.score.toFixed(2)}`);
    if (answer.find === "texts") return element("li", {}, element("p", {}, words, score));
    return element("li", {}, element("figure", {}, await shown(hit.row, pictureOf, ""), element("figcaption", {}, score, words)));
  }));
  const found = element("div", answer.close ? {} : { class: "is-unknown" }, element("ol", { class: answer.find === "texts" ? "texts" : "gallery" }, ...items));
  const first = answer.by === "words" ? "Photos and texts with these words come first. " : "";
  return element("div", {}, ...notes, found, element("p", { class: "note bars" }, `${first}A longer bar is more similar.`));
};

export const classes = (answer) => element("div", { class: "verdict-box" }, element("p", { class: "verdict-line" }, element("b", {}, answer.label)),
  element("ol", { class: "texts" }, ...answer.scores.slice(0, 5).map(({ label, score }) => element("li", {},
    element("p", {}, `${label} `, element("span", { class: "note" }, percent(score)), meter(score, `${label}: ${percent(score)}`))))));
