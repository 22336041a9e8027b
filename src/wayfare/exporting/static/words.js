// Words of a text, as wayfare.hashing reads them: tokens, bags, other forms and slips of the keyboard, stems, BM25.
const SINGLE = /([\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff])/gu;

export const tokens = (text) => text.normalize("NFKC").toLowerCase().replace(/[^\p{L}\p{M}\p{N}]/gu, " ")
  .replace(SINGLE, " $1 ").split(/\s+/u).filter(Boolean);

export const bagOf = (text, words) => {
  const held = new Set([...tokens(text), ...text.toLowerCase().split(/\s+/u), ...text.split(/\s+/u)]);
  return Float32Array.from(words, (word) => (held.has(word) ? 1 : 0));
};

// ---- spelling

const SHORTEST = 4, LONG = 8;

function* forms(word) {
  const ends = (ending) => word.endsWith(ending), cut = (letters) => word.slice(0, -letters);
  if (ends("ies")) yield `${cut(3)}y`;
  if (ends("ves")) { yield `${cut(3)}f`; yield `${cut(3)}fe`; }
  if (ends("es")) yield cut(2);
  if (ends("s") && !ends("ss")) yield cut(1);
  if (ends("y")) yield `${cut(1)}ies`;
  if (ends("f")) yield `${cut(1)}ves`;
  if (ends("fe")) yield `${cut(2)}ves`;
  yield `${word}s`;
  yield `${word}es`;
}

const slips = (word, other, most) => {
  let before = [], row = Array.from({ length: other.length + 1 }, (_, at) => at);
  for (let at = 1; at <= word.length; at += 1) {
    const last = before;
    before = row;
    row = [at];
    for (let place = 1; place <= other.length; place += 1) {
      const letter = word[at - 1], wanted = other[place - 1];
      let cost = Math.min(before[place] + 1, row[place - 1] + 1, before[place - 1] + (letter === wanted ? 0 : 1));
      if (at > 1 && place > 1 && letter === other[place - 2] && word[at - 2] === wanted) cost = Math.min(cost, last[place - 2] + 1);
      row.push(cost);
    }
    if (Math.min(...row) > most) return most + 1;
  }
  return row[row.length - 1];
};

const nearest = (word, known, isWord) => {
  for (const form of forms(word)) if (known.has(form)) return form;
  for (const form of forms(word)) if (isWord(form)) return word;
  if (word.length < SHORTEST || /^\d+$/u.test(word)) return null;
  const most = word.length >= LONG ? 2 : 1;
  const letters = [...word].sort().join("");
  let best = null;
  for (const [other, count] of known) {
    if (other.length < SHORTEST - 1 || Math.abs(word.length - other.length) > most || word[0] !== other[0]) continue;
    const cost = slips(word, other, most);
    if (cost > most) continue;
    const entry = [cost, [...other].sort().join("") === letters ? 0 : 1, -count];
    const differs = best ? entry.findIndex((value, place) => value !== best.entry[place]) : 0;
    if (!best || (differs < 0 ? other < best.other : entry[differs] < best.entry[differs])) best = { entry, other };
  }
  return best && best.other;
};

// `known` is a Map from words to how frequent they are; a word that is not known stays as it is if it, or a form of it, `isWord`.
export const read = (text, known, isWord) => {
  const changed = {}, unknown = [], parts = [];
  for (const part of text.split(/\s+/u).filter(Boolean)) {
    if (known.has(part) || known.has(part.toLowerCase())) { parts.push(part); continue; }
    for (const word of tokens(part)) {
      const reading = known.has(word) || isWord(word) ? word : nearest(word, known, isWord);
      if (reading === null) unknown.push(word);
      else if (reading !== word) changed[word] = reading;
      parts.push(reading ?? word);
    }
  }
  return { text: parts.join(" "), changed, unknown: [...new Set(unknown)] };
};

// ---- stems: Porter's algorithm

const isConsonant = (word, at) => {
  const letter = word[at];
  if ("aeiou".includes(letter)) return false;
  return letter === "y" ? at === 0 || !isConsonant(word, at - 1) : true;
};
const shapeOf = (word) => Array.from(word, (_, at) => (isConsonant(word, at) ? "c" : "v")).join("");
const measure = (word) => (shapeOf(word).match(/v+c+/gu) ?? []).length;
const hasVowel = (word) => shapeOf(word).includes("v");
const endsDouble = (word) => word.length > 1 && word.at(-1) === word.at(-2) && isConsonant(word, word.length - 1);
const endsShort = (word) => /cvc$/u.test(shapeOf(word)) && !"wxy".includes(word.at(-1));
const SECOND = { ational: "ate", tional: "tion", enci: "ence", anci: "ance", izer: "ize", logi: "log", bli: "ble", alli: "al", entli: "ent", eli: "e", ousli: "ous", ization: "ize", ation: "ate", ator: "ate", alism: "al", iveness: "ive", fulness: "ful", ousness: "ous", aliti: "al", iviti: "ive", biliti: "ble" };
const THIRD = { icate: "ic", ative: "", alize: "al", iciti: "ic", ical: "ic", ful: "", ness: "" };
const FOURTH = ["al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion", "ou", "ism", "ate", "iti", "ous", "ive", "ize"];
const longest = (word, endings) => endings.filter((each) => word.endsWith(each)).sort((a, b) => b.length - a.length)[0];

export const stem = (given) => {
  let word = given;
  if (word.length < 3 || word.length > 64) return word;
  if (word.endsWith("sses") || word.endsWith("ies")) word = word.slice(0, -2);
  else if (word.endsWith("s") && !word.endsWith("ss")) word = word.slice(0, -1);
  if (word.endsWith("eed")) {
    if (measure(word.slice(0, -3)) > 0) word = word.slice(0, -1);
  } else {
    const ending = ["ed", "ing"].find((each) => word.endsWith(each) && hasVowel(word.slice(0, -each.length)));
    if (ending) {
      word = word.slice(0, -ending.length);
      if (["at", "bl", "iz"].some((each) => word.endsWith(each))) word += "e";
      else if (endsDouble(word) && !"lsz".includes(word.at(-1))) word = word.slice(0, -1);
      else if (measure(word) === 1 && endsShort(word)) word += "e";
    }
  }
  if (word.endsWith("y") && hasVowel(word.slice(0, -1))) word = `${word.slice(0, -1)}i`;
  for (const table of [SECOND, THIRD]) {
    const ending = longest(word, Object.keys(table));
    if (ending && measure(word.slice(0, -ending.length)) > 0) word = word.slice(0, -ending.length) + table[ending];
  }
  const ending = longest(word, FOURTH);
  if (ending) {
    const rest = word.slice(0, -ending.length);
    if (measure(rest) > 1 && (ending !== "ion" || /[st]$/u.test(rest))) word = rest;
  }
  if (word.endsWith("e")) {
    const rest = word.slice(0, -1), size = measure(rest);
    if (size > 1 || (size === 1 && !endsShort(rest))) word = rest;
  }
  if (word.endsWith("ll") && measure(word) > 1) word = word.slice(0, -1);
  return word;
};

// ---- which items have a query's words: BM25 as SQLite's FTS5 computes it

const K1 = 1.2, B = 0.75, MOST = 1000;
const termOf = (word) => stem(word.normalize("NFD").replace(/[\u0300-\u036f]/gu, ""));

export class Lexicon {
  constructor({ terms, lengths, items }) {
    this.terms = new Map(Object.entries(terms)); // stem -> [row, how often, row, how often, ...]
    this.lengths = lengths; // [row, words, row, words, ...]
    this.size = new Map();
    let total = 0;
    for (let at = 0; at < lengths.length; at += 2) { this.size.set(lengths[at], lengths[at + 1]); total += lengths[at + 1]; }
    this.rows = this.size.size;
    this.average = this.rows ? total / this.rows : 1;
    this.items = Math.max(1, items);
  }

  held(word) { return (this.terms.get(termOf(word)) ?? []).length / 2; }

  has(word) { return this.held(word) > 0; }

  // A Map from rows to the share of the text's words that they have.
  search(text) {
    const words = [...new Set(tokens(text))], known = words.filter((word) => this.has(word)), scores = new Map();
    if (!known.length) return scores;
    const rarity = (all, held) => Math.max(Math.log((all - held + 0.5) / (held + 0.5)), 1e-6);
    const most = words.reduce((sum, word) => sum + rarity(this.items, this.held(word)), 0);
    for (const word of known) {
      const list = this.terms.get(termOf(word)), idf = rarity(this.rows, list.length / 2);
      for (let at = 0; at < list.length; at += 2) {
        const often = list[at + 1], size = this.size.get(list[at]);
        const value = idf * (often * (K1 + 1)) / (often + K1 * (1 - B + (B * size) / this.average));
        scores.set(list[at], (scores.get(list[at]) ?? 0) + value);
      }
    }
    const best = [...scores].sort((a, b) => b[1] - a[1] || a[0] - b[0]).slice(0, MOST);
    return new Map(best.map(([row, score]) => [row, Math.max(score / most, 0)]));
  }
}
