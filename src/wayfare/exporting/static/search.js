// Photos and texts by words or by a photo: as wayfare.hashing.search does it.
import { Lexicon, read, tokens } from "./words.js";

const LOOK = 2000, WORDS_COUNT = 1, MOST_WORDS = 0.5;
const SIDES = { photos: "image", texts: "text" };
const length = (values) => Math.sqrt(values.reduce((sum, value) => sum + value * value, 0));

const popcount = (value) => {
  let bits = value, count = 0;
  for (; bits; bits &= bits - 1) count += 1;
  return count;
};
const COUNTS = Uint8Array.from({ length: 256 }, (_, value) => popcount(value));

export class View {
  constructor(facts, items, codes, values) {
    Object.assign(this, { facts, items, codes, values, count: items.length, bits: facts.bits, width: Math.ceil(facts.bits / 8) });
    this.lexicon = new Lexicon(facts.lexicon);
    this.known = new Map(facts.vocabulary.map((word, place) => [word, facts.vocabulary.length - place]));
  }

  distance(row, code) {
    let sum = 0;
    for (let at = 0; at < this.width; at += 1) sum += COUNTS[this.codes[row * this.width + at] ^ code[at]];
    return sum;
  }

  near(code, count) {
    const distances = Uint16Array.from({ length: this.count }, (_, row) => this.distance(row, code));
    const counts = new Array(8 * this.width + 1).fill(0);
    distances.forEach((distance) => { counts[distance] += 1; });
    let reach = 0;
    for (let sum = counts[0]; sum < Math.min(count, this.count); sum += counts[reach]) reach += 1;
    return Array.from(distances.keys()).filter((row) => distances[row] <= reach);
  }

  score(row, asked, centre) {
    const own = this.values.subarray(row * this.bits, (row + 1) * this.bits), size = Math.max(length(own), 1e-12);
    let dot = 0, square = 0;
    for (let bit = 0; bit < this.bits; bit += 1) {
      const value = own[bit] / size - centre[bit];
      dot += value * asked[bit];
      square += value * value;
    }
    return dot / Math.max(Math.sqrt(square) * (length(asked) || 1), 1e-12);
  }
}

const coded = (features, width) => {
  const code = new Uint8Array(width);
  features.forEach((value, bit) => { if (value >= 0) code[bit >> 3] |= 1 << (bit & 7); });
  return code;
};

const rounded = (value) => Math.round(value * 1e6) / 1e6;

// What `wayfare search --json` says of one query; `features` are the network's, or null where it knows no word of it.
export const search = (view, { features, own, centre, level, find, query, by, reading, k = 10 }) => {
  const asked = features ? Array.from(features, (value, bit) => value / length(features) - own[bit]) : new Array(view.bits).fill(0);
  const code = coded(asked.map((value, bit) => value + centre[bit]), view.width);
  const shares = reading ? view.lexicon.search(reading.text) : new Map();
  const rows = [...new Set([...view.near(code, Math.max(LOOK, 20 * k)), ...shares.keys()])].sort((a, b) => a - b);
  const all = rows.map((row) => ({
    row, score: view.score(row, asked, centre), words: shares.get(row) ?? 0, distance: view.distance(row, code), order: view.items[row].order,
  }));
  all.forEach((hit) => { hit.total = rounded(hit.score + WORDS_COUNT * hit.words); hit.words = Math.min(hit.words, 1); });
  all.sort((a, b) => b.total - a.total || a.distance - b.distance || a.order - b.order);
  let hits = all.slice(0, k);
  if (!features) hits = hits.filter((hit) => hit.words);
  const close = hits.some((hit) => hit.score >= level || hit.words >= MOST_WORDS);
  return {
    query, by, find, unknown_words: reading?.unknown ?? [], read_as: reading?.changed ?? {}, close,
    results: hits.map((hit, at) => {
      const { name, texts, labels } = view.items[hit.row];
      return { rank: at + 1, row: hit.row, name, texts, labels, distance: hit.distance, score: rounded(hit.score), words: rounded(hit.words) };
    }),
  };
};

// A query of words as the model and the index can read it; an error where they know none of them.
export const readQuery = (view, words, { anyWord, isWord, vocabulary }) => {
  if (!words.trim()) throw new Error("The query is empty: type some words.");
  const reading = read(words, view.known, isWord);
  if (!reading.text && !reading.unknown.length) throw new Error("The query has no word in it.");
  const own = new Set(vocabulary);
  const text = reading.text;
  const known = anyWord ? tokens(text).length > 0 : [...tokens(text), ...text.toLowerCase().split(/\s+/u), ...text.split(/\s+/u)].some((word) => own.has(word));
  if (!known && !tokens(text).some((word) => view.lexicon.has(word))) {
    throw new Error(`None of these words is known: ${reading.unknown.join(", ")}. It knows ${vocabulary.slice(0, 6).join(", ")}, for instance.`);
  }
  return { reading: anyWord ? { ...reading, unknown: [] } : reading, known };
};

export { SIDES };
