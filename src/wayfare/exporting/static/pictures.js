// A photo's bytes to the numbers that a network takes, step by step as Pillow does it in wayfare.io.images.
//
// The browser only decodes. Turning, the reduction of large JPEGs and the resizing are done here, in whole numbers, as
// in Pillow. A large JPEG is reduced by libjpeg while it is decoded, from the lowest frequencies of each block of 8 x 8
// pixels; here that is computed from the decoded pixels. What differs is the rounding, and colours of large JPEGs.
const MOST_PIXELS = 50_000_000;
const MOST_BYTES = 256 * 2 ** 20;
const EXIF = 0x45786966;

// ---- the file

const orientationOf = (view, start, end) => {
  // the TIFF header follows "Exif\0\0"
  const little = view.getUint16(start) === 0x4949;
  const first = start + view.getUint32(start + 4, little);
  const entries = view.getUint16(first, little);
  for (let entry = 0; entry < entries; entry += 1) {
    const at = first + 2 + 12 * entry;
    if (at + 12 > end) break;
    if (view.getUint16(at, little) === 0x0112) return view.getUint16(at + 8, little);
  }
  return 1;
};

// The JPEG without its EXIF and colour profile, so that the browser shows its pixels as they are stored.
const bareJpeg = (bytes) => {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const kept = [bytes.subarray(0, 2)];
  let at = 2, orientation = 1;
  while (at + 4 <= bytes.length && bytes[at] === 0xff && bytes[at + 1] !== 0xda) {
    const kind = bytes[at + 1];
    if (kind === 0xff) { at += 1; continue; }
    const next = at + 2 + view.getUint16(at + 2);
    if (next > bytes.length) break;
    if (kind === 0xe1 && next - at > 18 && view.getUint32(at + 4) === EXIF) {
      try { orientation = orientationOf(view, at + 10, next); } catch { orientation = 1; }
    } else if (kind !== 0xe2) kept.push(bytes.subarray(at, next));
    at = next;
  }
  kept.push(bytes.subarray(at));
  return { blob: new Blob(kept, { type: "image/jpeg" }), orientation };
};

const starts = (bytes, ...signature) => signature.every((value, at) => bytes[at] === value);

const decoded = async (file) => {
  if (file.size > MOST_BYTES) throw new Error("this file is too large");
  const bytes = new Uint8Array(await file.arrayBuffer());
  if (!bytes.length) throw new Error("this file is empty");
  const jpeg = starts(bytes, 0xff, 0xd8, 0xff);
  const png = starts(bytes, 0x89, 0x50, 0x4e, 0x47);
  const webp = starts(bytes, 0x52, 0x49, 0x46, 0x46);
  if (!jpeg && !png && !webp) throw new Error("this is not a JPEG, PNG or WebP picture");
  const bare = jpeg ? bareJpeg(bytes) : { blob: new Blob([bytes], { type: png ? "image/png" : "image/webp" }), orientation: 1 };
  let bitmap;
  try {
    bitmap = await createImageBitmap(bare.blob, { colorSpaceConversion: "none" });
  } catch {
    throw new Error("this picture is damaged, or the browser cannot read it");
  }
  const { width, height } = bitmap;
  if (width * height > MOST_PIXELS) throw new Error(`this picture is too large: ${width} x ${height} pixels`);
  const canvas = new OffscreenCanvas(width, height);
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.fillStyle = "#fff";
  context.fillRect(0, 0, width, height);
  context.drawImage(bitmap, 0, 0);
  bitmap.close();
  const shown = context.getImageData(0, 0, width, height).data;
  const pixels = new Uint8Array(3 * width * height);
  for (let from = 0, to = 0; to < pixels.length; from += 4, to += 3) {
    pixels[to] = shown[from];
    pixels[to + 1] = shown[from + 1];
    pixels[to + 2] = shown[from + 2];
  }
  return { pixels, width, height, jpeg, orientation: bare.orientation };
};

// ---- a JPEG at a half, a quarter or an eighth of its size

const cosine = (frequency, place, length) => (frequency ? Math.SQRT2 : 1) * Math.cos(((2 * place + 1) * frequency * Math.PI) / (2 * length));

// From 8 numbers to `side`: their lowest frequencies.
const reduction = (side) => Array.from({ length: side }, (_, to) => Float64Array.from({ length: 8 }, (__, from) => {
  let sum = 0;
  for (let frequency = 0; frequency < side; frequency += 1) sum += cosine(frequency, to, side) * cosine(frequency, from, 8);
  return sum / 8;
}));

const clamped = (value) => (value < 0 ? 0 : value > 255 ? 255 : Math.floor(value + 0.5));

export const reduced = ({ pixels, width, height }, factor) => {
  const side = 8 / factor, matrix = reduction(side);
  const wide = Math.ceil(width / factor), high = Math.ceil(height / factor);
  const across = new Float32Array(3 * wide * height);
  for (let y = 0; y < height; y += 1) {
    for (let x = 0; x < wide; x += 1) {
      const block = 8 * Math.floor(x / side), weights = matrix[x % side];
      let r = 0, g = 0, b = 0;
      for (let at = 0; at < 8; at += 1) {
        const from = 3 * (y * width + Math.min(block + at, width - 1)), weight = weights[at];
        r += weight * pixels[from];
        g += weight * pixels[from + 1];
        b += weight * pixels[from + 2];
      }
      const to = 3 * (y * wide + x);
      across[to] = r;
      across[to + 1] = g;
      across[to + 2] = b;
    }
  }
  const found = new Uint8Array(3 * wide * high);
  for (let y = 0; y < high; y += 1) {
    const block = 8 * Math.floor(y / side), weights = matrix[y % side];
    for (let x = 0; x < 3 * wide; x += 1) {
      let sum = 0;
      for (let at = 0; at < 8; at += 1) sum += weights[at] * across[3 * wide * Math.min(block + at, height - 1) + x];
      found[3 * wide * y + x] = clamped(sum);
    }
  }
  return { pixels: found, width: wide, height: high };
};

const factorOf = (width, height, wanted) => {
  const room = Math.min(Math.floor(width / wanted.width), Math.floor(height / wanted.height));
  return [8, 4, 2].find((factor) => room >= factor) ?? 1;
};

// ---- EXIF's eight ways of lying

const turned = ({ pixels, width, height }, orientation) => {
  if (orientation < 2 || orientation > 8) return { pixels, width, height };
  const sideways = orientation > 4;
  const [wide, high] = sideways ? [height, width] : [width, height];
  const found = new Uint8Array(pixels.length);
  const source = {
    2: (x, y) => [width - 1 - x, y], 3: (x, y) => [width - 1 - x, height - 1 - y], 4: (x, y) => [x, height - 1 - y],
    5: (x, y) => [y, x], 6: (x, y) => [y, height - 1 - x], 7: (x, y) => [width - 1 - y, height - 1 - x],
    8: (x, y) => [width - 1 - y, x],
  }[orientation];
  for (let y = 0; y < high; y += 1) {
    for (let x = 0; x < wide; x += 1) {
      const [a, b] = source(x, y), from = 3 * (b * width + a), to = 3 * (y * wide + x);
      found[to] = pixels[from];
      found[to + 1] = pixels[from + 1];
      found[to + 2] = pixels[from + 2];
    }
  }
  return { pixels: found, width: wide, height: high };
};

// ---- Pillow's bilinear resizing: a triangle as wide as what it covers, weights in 22 bits, first across, then down

const BITS = 22;

const weightsOf = (from, to) => {
  const scale = from / to, reach = Math.max(scale, 1);
  return Array.from({ length: to }, (_, place) => {
    const middle = (place + 0.5) * scale;
    const first = Math.max(Math.trunc(middle - reach + 0.5), 0), last = Math.min(Math.trunc(middle + reach + 0.5), from);
    const weights = [];
    let sum = 0;
    for (let at = first; at < last; at += 1) {
      const weight = Math.max(0, 1 - Math.abs((at - middle + 0.5) / reach));
      weights.push(weight);
      sum += weight;
    }
    return { first, weights: weights.map((weight) => Math.trunc((weight / sum) * 2 ** BITS + 0.5)) };
  });
};

const byte = (sum) => Math.min(255, Math.max(0, Math.floor(sum / 2 ** BITS)));

export const resized = ({ pixels, width, height }, wanted) => {
  let across = pixels;
  if (wanted.width !== width) {
    const columns = weightsOf(width, wanted.width);
    across = new Uint8Array(3 * wanted.width * height);
    for (let y = 0; y < height; y += 1) {
      columns.forEach(({ first, weights }, x) => {
        let r = 2 ** (BITS - 1), g = r, b = r;
        for (let at = 0; at < weights.length; at += 1) {
          const from = 3 * (y * width + first + at);
          r += weights[at] * pixels[from];
          g += weights[at] * pixels[from + 1];
          b += weights[at] * pixels[from + 2];
        }
        const to = 3 * (y * wanted.width + x);
        across[to] = byte(r);
        across[to + 1] = byte(g);
        across[to + 2] = byte(b);
      });
    }
  }
  if (wanted.height === height) return across;
  const line = 3 * wanted.width, found = new Uint8Array(line * wanted.height);
  weightsOf(height, wanted.height).forEach(({ first, weights }, y) => {
    for (let x = 0; x < line; x += 1) {
      let sum = 2 ** (BITS - 1);
      for (let at = 0; at < weights.length; at += 1) sum += weights[at] * across[(first + at) * line + x];
      found[y * line + x] = byte(sum);
    }
  });
  return found;
};

// ---- all of it

// The pixels as the network is shown them, RGB by rows.
export const pixelsOf = async (file, wanted) => {
  const picture = await decoded(file);
  const sideways = picture.orientation > 4 && picture.orientation < 9;
  const size = sideways ? { width: wanted.height, height: wanted.width } : wanted;
  // as Pillow's draft: the size that is asked for is that of the stored picture, not yet upright
  const factor = picture.jpeg ? factorOf(picture.width, picture.height, size) : 1;
  const small = factor > 1 ? reduced(picture, factor) : picture;
  return resized(turned(small, picture.orientation), wanted);
};

// Float32 [3, height, width] from 0 to 1.
export const asInput = (pixels, wanted) => {
  const area = wanted.width * wanted.height, found = new Float32Array(3 * area);
  for (let place = 0; place < area; place += 1) {
    for (let colour = 0; colour < 3; colour += 1) found[colour * area + place] = pixels[3 * place + colour] / 255;
  }
  return found;
};
