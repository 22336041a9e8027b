// Texts to the tokens of a sentence encoder, by its own tokenizer.json: WordPiece (BERT) or byte pairs (Llama).
const CHINESE = /[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]/u;
const PUNCTUATION = /[\p{P}!-/:-@[-`{-~]/u;

class WordPiece {
  constructor(given) {
    this.vocabulary = new Map(Object.entries(given.model.vocab));
    this.unknown = this.vocabulary.get("[UNK]");
    this.ends = [this.vocabulary.get("[CLS]"), this.vocabulary.get("[SEP]")];
  }

  parts(text) {
    const clean = text.replace(/[\p{Cc}\p{Cf}\ufffd]/gu, (sign) => ("\t\n\r".includes(sign) ? " " : "")).normalize("NFD")
      .replace(/\p{Mn}/gu, "").toLowerCase();
    const spaced = Array.from(clean, (sign) => (CHINESE.test(sign) || PUNCTUATION.test(sign) ? ` ${sign} ` : sign)).join("");
    return spaced.split(/\s+/u).filter(Boolean);
  }

  pieces(word) {
    const signs = Array.from(word), found = [];
    if (signs.length > 100) return [this.unknown];
    for (let start = 0; start < signs.length;) {
      let end = signs.length, id;
      for (; end > start; end -= 1) {
        id = this.vocabulary.get((start ? "##" : "") + signs.slice(start, end).join(""));
        if (id !== undefined) break;
      }
      if (id === undefined) return [this.unknown];
      found.push(id);
      start = end;
    }
    return found;
  }

  ids(text, special, longest) {
    const inner = this.parts(text).flatMap((word) => this.pieces(word));
    return special ? [this.ends[0], ...inner.slice(0, longest - 2), this.ends[1]] : inner.slice(0, longest);
  }
}

class BytePairs {
  constructor(given) {
    this.vocabulary = new Map(Object.entries(given.model.vocab));
    this.ranks = new Map(given.model.merges.map((pair, rank) => [Array.isArray(pair) ? pair.join(" ") : pair, rank]));
    this.unknown = this.vocabulary.get("<unk>");
  }

  ids(text, special, longest) {
    if (!text) return [];
    let parts = Array.from(`\u2581${text}`.replaceAll(" ", "\u2581"));
    for (;;) {
      let best = Infinity, at = -1;
      for (let place = 0; place + 1 < parts.length; place += 1) {
        const rank = this.ranks.get(`${parts[place]} ${parts[place + 1]}`) ?? Infinity;
        if (rank < best) [best, at] = [rank, place];
      }
      if (at < 0) break;
      parts = [...parts.slice(0, at), parts[at] + parts[at + 1], ...parts.slice(at + 2)];
    }
    const found = parts.flatMap((part) => {
      const id = this.vocabulary.get(part);
      if (id !== undefined) return [id];
      return Array.from(new TextEncoder().encode(part), (each) => this.vocabulary.get(`<0x${each.toString(16).toUpperCase().padStart(2, "0")}>`) ?? this.unknown);
    });
    return found.slice(0, longest);
  }
}

export class Tokenizer {
  constructor(given, { special_tokens: special, longest }) {
    this.inner = given.model.type === "WordPiece" ? new WordPiece(given) : new BytePairs(given);
    Object.assign(this, { special, longest });
  }

  ids(text) { return this.inner.ids(text.trim(), this.special, this.longest); }

  isWord(word) { return this.inner.ids(word.toLowerCase(), false, this.longest).length === 1; }
}
