"use strict";
(() => {
  const ABSENT = -32768;
  const NOBODY = 4294967295;
  const UNKNOWN = 65535;
  const FINE = 10000;
  const RAMP = [[107, 44, 145], [58, 95, 184], [36, 151, 163], [108, 184, 74], [240, 194, 43]];
  const SHADES = 64;
  const FLASH = 0.7; // seconds that an exchange is seen for while the day plays
  const ADOPTED = 1, BETTER = 2, WORSE = 4;

  const get = (id) => document.getElementById(id);
  const root = get("tour"), map = get("tour-map"), strip = get("tour-strip"), slider = get("tour-at");
  const clock = get("tour-clock"), tip = get("tour-tip"), now = get("tour-now");
  const playButton = get("tour-play"), speed = get("tour-speed");
  const told = JSON.parse(get("tour-data").textContent);
  const devices = told.ids.length, frames = told.frames, frameCount = frames.length;

  const unpack = async (text) => {
    const raw = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    const stream = new Blob([raw]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Response(stream).arrayBuffer();
  };

  const state = {
    at: 0, // slots, with a fraction
    playing: false, last: 0, done: 0, hover: -1, mouse: null,
    zoom: 1, middle: [0, 0],
  };
  let positions, first, slot, taker, giver, value, flag;
  let accuracy, took, gave, ground = null, colours = {};

  // ---- data

  const load = async () => {
    const names = ["slot", "taker", "giver", "value", "flag"];
    const [moves, start, ...columns] = await Promise.all(
      [told.positions, told.first, ...names.map((name) => told.events[name])].map(unpack));
    const bytes = new Uint8Array(moves), half = bytes.length / 2;
    positions = new Int16Array(half);
    for (let row = 0; row < half; row += frameCount) {
      let sum = 0;
      for (let f = row; f < row + frameCount; f++) {
        sum = (sum + bytes[f] + 256 * bytes[half + f]) & 0xffff;
        positions[f] = sum;
      }
    }
    first = new Uint16Array(start);
    [slot, taker, giver] = columns.slice(0, 3).map((column) => new Uint32Array(column));
    value = new Uint16Array(columns[3]);
    flag = new Uint8Array(columns[4]);
  };

  const rewind = () => {
    accuracy = Uint16Array.from(first);
    took = new Uint32Array(devices);
    gave = new Uint32Array(devices);
    state.done = 0;
  };

  // Everything that happened up to a slot; going back starts again from the beginning.
  const replay = (until) => {
    if (state.done && slot[state.done - 1] > until) rewind();
    for (; state.done < slot.length && slot[state.done] <= until; state.done++) {
      const e = state.done;
      if ((flag[e] & ADOPTED) && value[e] !== UNKNOWN) accuracy[taker[e]] = value[e];
      if (giver[e] === NOBODY) continue;
      took[taker[e]]++;
      gave[giver[e]]++;
    }
  };

  const firstEvent = (from) => {
    let low = 0, high = slot.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (slot[middle] < from) low = middle + 1; else high = middle;
    }
    return low;
  };

  const meanNow = () => {
    let sum = 0, count = 0;
    for (let d = 0; d < devices; d++) if (accuracy[d] !== UNKNOWN) { sum += accuracy[d]; count++; }
    return count ? sum / count / FINE : NaN;
  };

  // ---- places

  const frameAt = (at) => {
    let low = 0, high = frameCount - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (frames[middle] <= at) low = middle; else high = middle - 1;
    }
    return low;
  };

  // Where a device was at a moment; null if neither frame around it knows.
  const placeOf = (d, at) => {
    const f = frameAt(at), g = Math.min(f + 1, frameCount - 1), row = d * 2 * frameCount;
    const near = [f, g].filter((k) => positions[row + k] !== ABSENT);
    if (!near.length) return null;
    const share = near.length === 2 && g > f ? Math.min(1, (at - frames[f]) / (frames[g] - frames[f])) : 0;
    const [a, b] = [near[0], near[near.length - 1]];
    return [row, row + frameCount].map((r) => positions[r + a] + share * (positions[r + b] - positions[r + a]));
  };

  const xs = new Float32Array(devices), ys = new Float32Array(devices), there = new Uint8Array(devices);
  const place = (at) => {
    const f = frameAt(at), g = Math.min(f + 1, frameCount - 1);
    const share = g > f ? Math.min(1, (at - frames[f]) / (frames[g] - frames[f])) : 0;
    let present = 0;
    for (let d = 0; d < devices; d++) {
      const row = d * 2 * frameCount;
      const x0 = positions[row + f], x1 = positions[row + g];
      const y0 = positions[row + frameCount + f], y1 = positions[row + frameCount + g];
      const here = x0 !== ABSENT, next = x1 !== ABSENT;
      // who comes or goes between two frames is there in the half next to the frame that knows
      there[d] = here && next ? 1 : here ? +(share < 0.5) : next ? +(share >= 0.5) : 0;
      if (here && next) { xs[d] = x0 + share * (x1 - x0); ys[d] = y0 + share * (y1 - y0); }
      else if (here) { xs[d] = x0; ys[d] = y0; }
      else if (next) { xs[d] = x1; ys[d] = y1; }
      present += there[d];
    }
    return present;
  };

  const [west, south, east, north] = told.view;
  const home = [(west + east) / 2, (south + north) / 2];
  state.middle = [...home];
  const scale = () => {
    const pad = 28;
    const fit = Math.min((map.clientWidth - 2 * pad) / (east - west), (map.clientHeight - 2 * pad) / (north - south));
    return Math.max(fit, 1e-6) * state.zoom;
  };
  const toScreen = (s) => [map.clientWidth / 2 - s * state.middle[0], map.clientHeight / 2 + s * state.middle[1]];

  // ---- drawing

  const shades = Array.from({ length: SHADES }, (_, i) => {
    const t = (i / (SHADES - 1)) * (RAMP.length - 1), k = Math.min(Math.floor(t), RAMP.length - 2);
    const mix = RAMP[k].map((c, j) => Math.round(c + (t - k) * (RAMP[k + 1][j] - c)));
    return `rgb(${mix.join(",")})`;
  });
  const [lowest, highest] = told.range.map((v) => v * FINE);
  const shade = (v) =>
    Math.max(0, Math.min(SHADES - 1, Math.round(((v - lowest) / (highest - lowest)) * (SHADES - 1))));

  const readColours = () => {
    const style = getComputedStyle(root);
    for (const name of ["ink", "muted", "line", "map", "surface", "accent", "c-good", "c-bad", "c9"]) {
      colours[name] = style.getPropertyValue("--" + name).trim();
    }
  };

  const fitCanvas = (canvas) => {
    const dense = Math.min(window.devicePixelRatio || 1, 2);
    const width = Math.round(canvas.clientWidth * dense), height = Math.round(canvas.clientHeight * dense);
    if (canvas.width !== width || canvas.height !== height) {
      canvas.width = width;
      canvas.height = height;
      ground = null;
    }
    const pen = canvas.getContext("2d");
    pen.setTransform(dense, 0, 0, dense, 0, 0);
    return pen;
  };

  let picture = null;
  const loadPicture = () => {
    const image = new Image();
    image.onload = () => { picture = image; ground = null; later(); };
    image.src = told.ground.image;
  };

  // Where people walk over the whole day, faintly: the streets, if there are any.
  const drawGround = () => {
    const width = map.clientWidth, height = map.clientHeight;
    const s = scale(), [ox, oy] = toScreen(s);
    const counts = new Uint16Array(width * height);
    for (let d = 0; d < devices; d++) {
      const row = d * 2 * frameCount;
      for (let f = 0; f < frameCount; f++) {
        if (positions[row + f] === ABSENT) continue;
        const x = Math.floor(ox + s * positions[row + f]), y = Math.floor(oy - s * positions[row + frameCount + f]);
        if (x >= 0 && y >= 0 && x < width && y < height && counts[y * width + x] < 65535) counts[y * width + x]++;
      }
    }
    ground = document.createElement("canvas");
    ground.width = width;
    ground.height = height;
    const pen = ground.getContext("2d"), image = pen.createImageData(width, height);
    const dark = matchMedia("(prefers-color-scheme: dark)").matches ? 255 : 0;
    if (picture) {  // a map to walk on says more than the ways that were walked
      const [w, s0, e, n] = told.ground.box;
      pen.globalAlpha = dark ? 0.4 : 0.75;
      pen.drawImage(picture, ox + s * w, oy - s * n, s * (e - w), s * (n - s0));
      return;
    }
    for (let i = 0; i < counts.length; i++) {
      if (!counts[i]) continue;
      image.data.fill(dark, 4 * i, 4 * i + 3);
      image.data[4 * i + 3] = Math.min(70, 14 + 9 * Math.log2(counts[i]));
    }
    pen.putImageData(image, 0, 0);
  };

  const drawScale = (pen, s) => {
    if (!told.located) return;
    const metre = s / told.step, most = Math.min(160, map.clientWidth / 3) / metre;
    const base = 10 ** Math.floor(Math.log10(most));
    const length = [5, 2, 1].map((k) => k * base).find((l) => l <= most) || base;
    const y = map.clientHeight - 14, x = 14;
    pen.strokeStyle = pen.fillStyle = colours.muted;
    pen.lineWidth = 2;
    pen.beginPath();
    pen.moveTo(x, y - 4); pen.lineTo(x, y); pen.lineTo(x + length * metre, y); pen.lineTo(x + length * metre, y - 4);
    pen.stroke();
    pen.font = "12px system-ui, sans-serif";
    pen.fillText(length >= 1000 ? `${length / 1000} km` : `${length} m`, x + 4, y - 6);
  };

  const minutesPerSecond = () => Number(speed.value);
  const slotsPerSecond = () => (minutesPerSecond() * 60) / told.slot;

  const drawFlashes = (pen, s, ox, oy) => {
    const length = Math.max(1, FLASH * slotsPerSecond());
    for (let e = firstEvent(Math.ceil(state.at - length)); e < slot.length && slot[e] <= state.at; e++) {
      if (giver[e] === NOBODY) continue;
      const left = 1 - (state.at - slot[e]) / length;
      const from = placeOf(giver[e], slot[e]), to = placeOf(taker[e], slot[e]);
      if (!from || !to || left <= 0) continue;
      const ax = ox + s * from[0], ay = oy - s * from[1], bx = ox + s * to[0], by = oy - s * to[1];
      const known = flag[e] & ADOPTED ? flag[e] : 0;
      pen.strokeStyle = known & BETTER ? colours["c-good"] : known & WORSE ? colours["c-bad"] : colours.muted;
      pen.globalAlpha = 0.25 + 0.75 * left;
      pen.lineWidth = 1 + 2 * left;
      pen.beginPath();
      pen.moveTo(ax, ay);
      pen.lineTo(bx, by);
      pen.stroke();
      pen.beginPath();
      pen.arc(bx, by, 6 + 8 * (1 - left), 0, 7);
      pen.stroke();
    }
    pen.globalAlpha = 1;
  };

  const still = new Uint8Array(devices);
  told.still.forEach((d) => { still[d] = 1; });
  const radius = () => {
    const crowded = Math.max(2.6, Math.min(6, 60 / Math.sqrt(devices + 1) + 1.4));
    return crowded * Math.max(0.8, Math.min(1.5, Math.sqrt(state.zoom)));
  };

  const drawDevices = (pen, s, ox, oy) => {
    const r = radius(), groups = Array.from({ length: SHADES + 1 }, () => []);
    for (let d = 0; d < devices; d++) {
      if (there[d]) groups[accuracy[d] === UNKNOWN ? SHADES : shade(accuracy[d])].push(d);
    }
    pen.lineWidth = 1;
    groups.forEach((members, k) => {
      if (!members.length) return;
      pen.beginPath();
      for (const d of members) {
        const x = ox + s * xs[d], y = oy - s * ys[d];
        if (still[d]) pen.rect(x - r - 1, y - r - 1, 2 * r + 2, 2 * r + 2);
        else { pen.moveTo(x + r, y); pen.arc(x, y, r, 0, 7); }
      }
      pen.fillStyle = k === SHADES ? colours.c9 : shades[k];
      pen.strokeStyle = colours.map;
      pen.fill();
      pen.stroke();
    });
    pen.strokeStyle = colours.ink;
    pen.lineWidth = 1.5;
    for (const d of told.still) {
      if (there[d]) pen.strokeRect(ox + s * xs[d] - r - 1, oy - s * ys[d] - r - 1, 2 * r + 2, 2 * r + 2);
    }
  };

  const percent = (v) => (Number.isNaN(v) ? "–" : `${(100 * v).toFixed(1)} %`);

  const showTip = (s, ox, oy) => {
    state.hover = -1;
    if (state.mouse) {
      let best = 16 * 16;
      for (let d = 0; d < devices; d++) {
        if (!there[d]) continue;
        const dx = ox + s * xs[d] - state.mouse[0], dy = oy - s * ys[d] - state.mouse[1];
        if (dx * dx + dy * dy < best) { best = dx * dx + dy * dy; state.hover = d; }
      }
    }
    tip.hidden = state.hover < 0;
    if (tip.hidden) return;
    const d = state.hover, x = ox + s * xs[d], y = oy - s * ys[d];
    const known = accuracy[d] === UNKNOWN ? "accuracy not known" : percent(accuracy[d] / FINE);
    tip.textContent = `${told.ids[d]} · ${known} · took ${took[d]}, gave ${gave[d]}`;
    const wide = tip.offsetWidth;
    tip.style.left = `${Math.max(4, Math.min(x + 12, map.clientWidth - wide - 6))}px`;
    tip.style.top = `${y > 50 ? y - 40 : y + 14}px`;
    const pen = map.getContext("2d");
    pen.strokeStyle = colours.ink;
    pen.lineWidth = 2;
    pen.beginPath();
    pen.arc(x, y, radius() + 4, 0, 7);
    pen.stroke();
  };

  const timeOf = (at) => {
    const begin = ((told.start % 86400) + 86400) % 86400, seconds = Math.floor(begin + at * told.slot);
    const part = (unit, wrap) => String(Math.floor(seconds / unit) % wrap).padStart(2, "0");
    const day = begin + told.length * told.slot > 86400 ? `day ${1 + Math.floor(seconds / 86400)}, ` : "";
    return `${day}${part(3600, 24)}:${part(60, 60)}`;
  };

  // The day below the map: exchanges as bars, the mean accuracy as a line.
  let day = null;
  const readDay = () => {
    const bins = Math.max(1, Math.min(240, told.length)), bars = new Float32Array(bins), line = new Float32Array(bins);
    rewind();
    for (let k = 0; k < bins; k++) {
      const before = state.done;
      replay(((k + 1) / bins) * told.length - 1e-6);
      for (let e = before; e < state.done; e++) if (giver[e] !== NOBODY) bars[k]++;
      line[k] = meanNow();
    }
    day = { bars, line };
    rewind();
  };
  const drawStrip = () => {
    const pen = fitCanvas(strip), width = strip.clientWidth, height = strip.clientHeight;
    pen.clearRect(0, 0, width, height);
    const most = Math.max(1, ...day.bars), bins = day.bars.length;
    pen.fillStyle = colours.line;
    day.bars.forEach((n, k) => {
      const tall = (n / most) * (height - 4);
      pen.fillRect((k / bins) * width, height - tall, Math.max(1, width / bins - 0.5), tall);
    });
    const low = Math.min(...day.line), high = Math.max(...day.line, low + 0.01);
    pen.strokeStyle = colours.accent;
    pen.lineWidth = 2;
    pen.beginPath();
    day.line.forEach((v, k) => pen.lineTo(((k + 0.5) / bins) * width, height - 4 - ((v - low) / (high - low)) * (height - 8)));
    pen.stroke();
    pen.fillStyle = colours.ink;
    pen.fillRect((state.at / Math.max(1, told.length - 1)) * (width - 2), 0, 2, height);
  };

  const draw = () => {
    const pen = fitCanvas(map);
    if (!map.clientWidth) return;
    replay(state.at);
    const present = place(state.at), s = scale(), [ox, oy] = toScreen(s);
    pen.clearRect(0, 0, map.clientWidth, map.clientHeight);
    if (!ground && told.located) drawGround();
    if (ground) pen.drawImage(ground, 0, 0);
    drawFlashes(pen, s, ox, oy);
    drawDevices(pen, s, ox, oy);
    drawScale(pen, s);
    showTip(s, ox, oy);
    drawStrip();
    let exchanged = 0;
    took.forEach((n) => { exchanged += n; });
    clock.textContent = timeOf(state.at);
    now.textContent = `${present} there · ${exchanged} models taken · mean ${percent(meanNow())}`;
    slider.value = String(Math.floor(state.at));
    slider.setAttribute("aria-valuetext", clock.textContent);
    root.dataset.at = String(Math.floor(state.at));
  };

  // ---- playing

  const end = Math.max(0, told.length - 1);
  let waiting = false;
  const later = () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame((moment) => {
      waiting = false;
      if (state.playing) {
        const passed = state.last ? Math.min(0.25, (moment - state.last) / 1000) : 0;
        state.last = moment;
        state.at = Math.min(end, state.at + passed * slotsPerSecond());
        if (state.at >= end) play(false);
      }
      draw();
      if (state.playing) later();
    });
  };
  const play = (on) => {
    if (on && state.at >= end) state.at = 0;
    state.playing = on;
    state.last = 0;
    playButton.textContent = on ? "❚❚" : "▶";
    playButton.setAttribute("aria-label", on ? "Pause" : "Play");
    later();
  };
  const seek = (at) => {
    state.at = Math.max(0, Math.min(end, at));
    later();
  };
  // What lies at a point of the screen stays there.
  const zoomBy = (factor, [x, y] = [map.clientWidth / 2, map.clientHeight / 2]) => {
    const before = scale();
    state.zoom = Math.max(0.1, Math.min(100, state.zoom * factor));
    const change = 1 / before - 1 / scale();
    state.middle[0] += (x - map.clientWidth / 2) * change;
    state.middle[1] -= (y - map.clientHeight / 2) * change;
    map.style.touchAction = state.zoom > 1 ? "none" : "pan-y"; // a finger moves the map only when it is enlarged
    ground = null;
    later();
  };

  // The middle of those who are seen, to which the buttons and keys zoom.
  const crowd = () => {
    const s = scale(), [ox, oy] = toScreen(s), seen = [[], []];
    for (let d = 0; d < devices; d++) {
      const x = ox + s * xs[d], y = oy - s * ys[d];
      if (!there[d] || x < 0 || y < 0 || x > map.clientWidth || y > map.clientHeight) continue;
      seen[0].push(x);
      seen[1].push(y);
    }
    if (!seen[0].length) return undefined;
    return seen.map((values) => values.sort((a, b) => a - b)[values.length >> 1]);
  };
  const nearer = () => zoomBy(1.6, crowd());
  const further = () => zoomBy(1 / 1.6, crowd());

  const listen = () => {
    playButton.addEventListener("click", () => play(!state.playing));
    slider.addEventListener("input", () => seek(Number(slider.value)));
    get("tour-in").addEventListener("click", nearer);
    get("tour-out").addEventListener("click", further);
    const full = get("tour-full");
    full.hidden = !document.fullscreenEnabled;
    full.addEventListener("click", () => (document.fullscreenElement ? document.exitFullscreen() : root.requestFullscreen()));
    root.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.target === speed) return;
      const minute = ((event.shiftKey ? 10 : 1) * 60) / told.slot;
      const acts = {
        ArrowLeft: () => seek(state.at - minute),
        ArrowRight: () => seek(state.at + minute),
        Home: () => seek(0),
        End: () => seek(end),
        "+": nearer,
        "-": further,
      };
      if (event.target.tagName !== "BUTTON") acts[" "] = () => play(!state.playing);
      if (!acts[event.key]) return;
      event.preventDefault();
      acts[event.key]();
    });
    let held = null;
    const where = (event) => {
      const box = map.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    map.addEventListener("pointerdown", (event) => {
      held = where(event);
      state.mouse = held;
      if (event.pointerType === "mouse" || state.zoom > 1) map.setPointerCapture(event.pointerId);
      later();
    });
    map.addEventListener("pointermove", (event) => {
      const here = where(event);
      if (held && (event.pointerType === "mouse" || state.zoom > 1)) {
        const s = scale();
        state.middle[0] -= (here[0] - held[0]) / s;
        state.middle[1] += (here[1] - held[1]) / s;
        held = here;
        ground = null;
      }
      state.mouse = here;
      later();
    });
    for (const name of ["pointerup", "pointercancel"]) map.addEventListener(name, () => { held = null; });
    map.addEventListener("pointerleave", (event) => {
      if (event.pointerType === "mouse") { state.mouse = null; later(); }
    });
    map.addEventListener("dblclick", () => {
      state.zoom = 1;
      state.middle = [...home];
      zoomBy(1);
    });
    map.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && document.fullscreenElement !== root) return; // the page must scroll over the map
      event.preventDefault();
      zoomBy(Math.exp(-event.deltaY / 300), where(event));
    }, { passive: false });
    new ResizeObserver(() => { ground = null; later(); }).observe(map);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readColours(); ground = null; later(); });
  };

  // Where nobody is there at first, the day opens when half as many are there as ever: an empty map says nothing.
  const opening = () => {
    const counts = Array.from(frames, place), most = Math.max(...counts);
    return counts[0] || !most ? 0 : frames[counts.findIndex((count) => 2 * count >= most)];
  };

  const begin = async () => {
    if (typeof DecompressionStream === "undefined") {
      now.textContent = "This browser is too old to play the map.";
      return;
    }
    await load();
    readColours();
    readDay();
    get("tour-low").textContent = percent(told.range[0]);
    get("tour-high").textContent = percent(told.range[1]);
    listen();
    state.at = opening();
    draw();
    if (told.ground) loadPicture();
    root.dataset.ready = String(devices);
  };
  begin();
})();
