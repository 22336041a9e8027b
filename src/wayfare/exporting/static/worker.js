// The side of the page that answers: it holds the network and the index, and nothing that it is given leaves it.
import * as ort from "../ort/ort.js";
import { classified } from "./classes.js";
import { asInput, pixelsOf } from "./pictures.js";
import { Places } from "./places.js";
import { readQuery, search, SIDES, View } from "./search.js";
import { Tokenizer } from "./tokenizer.js";
import { bagOf, tokens } from "./words.js";

const ROOT = new URL("../", import.meta.url);
const at = (name) => new URL(name, ROOT);
const fetched = async (name) => {
  const response = await fetch(at(name));
  if (!response.ok) throw new Error(`${name} is missing from this folder (${response.status})`);
  return response;
};
const json = async (name) => (await fetched(name)).json();
const bytes = async (name) => (await fetched(name)).arrayBuffer();
const once = (make) => {
  let made;
  return () => { made ??= make(); return made; };
};

ort.env.wasm.wasmPaths = { mjs: at("ort/ort-wasm.js").href, wasm: at("ort/ort-wasm.wasm").href };
ort.env.wasm.numThreads = 1;
ort.env.logLevel = "error";

const site = once(() => json("data/site.json"));
const sessions = {};
const session = async (name) => {
  sessions[name] ??= (async () => {
    const part = (await site()).parts[name];
    if (!part) throw new Error(name === "text" ? "This model reads no words." : "This model reads no photos.");
    return ort.InferenceSession.create(new Uint8Array(await bytes(part.file)), { executionProviders: ["wasm"] });
  })();
  return sessions[name];
};

const run = async (name, inputs) => {
  const network = await session(name);
  const given = Object.fromEntries(network.inputNames.map((input, place) => [input, inputs[place]]));
  return Object.values(await network.run(given))[0].data;
};

const seconds = async (spent, name, work) => {
  const began = performance.now();
  const found = await work();
  spent[name] = (performance.now() - began) / 1000;
  return found;
};

const ofPhoto = async (file, spent) => {
  const { preparing } = (await site()).parts.image;
  const pixels = await seconds(spent, "decode", () => pixelsOf(file, preparing));
  const input = new ort.Tensor("float32", asInput(pixels, preparing), [1, 3, preparing.height, preparing.width]);
  return seconds(spent, "embed", () => run("image", [input]));
};

const tokenizer = once(async () => {
  const { preparing } = (await site()).parts.text;
  return new Tokenizer(await json(preparing.tokenizer), preparing);
});

const ofWords = async (text) => {
  const { preparing } = (await site()).parts.text;
  if (preparing.kind !== "tokens") return run("text", [new ort.Tensor("float32", bagOf(text, preparing.words), [1, preparing.words.length])]);
  const ids = (await tokenizer()).ids(text);
  const shape = [1, ids.length];
  return run("text", [new ort.Tensor("int64", BigInt64Array.from(ids, BigInt), shape), new ort.Tensor("float32", new Float32Array(ids.length).fill(1), shape)]);
};

// ---- the index

const places = once(async () => {
  const given = (await site()).places;
  const [facts, descriptors, positions, groups] = await Promise.all([
    json(given.facts), bytes(given.descriptors), bytes(given.positions), bytes(given.groups)]);
  return new Places(facts, new Float32Array(descriptors), new Float64Array(positions), new Int32Array(groups));
});

const views = {};
const view = (name) => {
  views[name] ??= (async () => {
    const given = (await site()).search.views[name];
    const [facts, items, codes, values] = await Promise.all([
      json(given.facts), json(given.items), bytes(given.codes), bytes(given.values)]);
    return new View(facts, items, new Uint8Array(codes), new Int8Array(values));
  })();
  return views[name];
};

const packs = {};
// One file for all small pictures: which of them are shown is seen by nobody who keeps the files.
const picture = async ({ file, ends, row }) => {
  packs[file] ??= Promise.all([bytes(file), bytes(ends)]);
  const [pack, places_] = await packs[file];
  const table = new Float64Array(places_);
  const start = row ? table[row - 1] : 0;
  return table[row] > start ? new Blob([pack.slice(start, table[row])], { type: "image/jpeg" }) : null;
};

// ---- what the page asks for

const found = (about, own, by, query) => ({ own: about.centres[own], query, by });

const searched = async (find, asked) => {
  const about = (await site()).search;
  return search(await view(find), { ...asked, find, centre: about.centres[SIDES[find]], level: about.close[find] });
};

const answers = {
  ready: async () => {
    await session("image").catch(() => session("text"));
    return site();
  },
  locate: async ({ file, name, k }, spent) => {
    const descriptor = await ofPhoto(file, spent);
    return seconds(spent, "search", async () => (await places()).locate(descriptor, name, k));
  },
  classify: async ({ file, name }, spent) => classified(await ofPhoto(file, spent), (await site()).classes, name),
  similar: async ({ file, name, find, k }, spent) => {
    const features = await ofPhoto(file, spent), about = (await site()).search;
    return seconds(spent, "search", () => searched(find, { ...found(about, "image", "photo", name), features, k }));
  },
  words: async ({ words, find, k }, spent) => {
    const about = (await site()).search, { preparing } = (await site()).parts.text ?? {};
    if (!preparing) throw new Error("This model reads no words.");
    const anyWord = preparing.kind === "tokens";
    const reader = anyWord ? await tokenizer() : null;
    const isWord = (word) => reader !== null && reader.isWord(word);
    const { reading, known } = readQuery(await view(find), words, { anyWord, isWord, vocabulary: about.vocabulary });
    const features = known ? await seconds(spent, "encode", () => ofWords(reading.text)) : null;
    return seconds(spent, "search", () => searched(find, { ...found(about, tokens(reading.text).length > 1 ? "text" : "words", "words", words), features, reading, k }));
  },
  near: async ({ row, most }) => (await places()).around(row, most),
  picture,
  embed: async ({ file }, spent) => ofPhoto(file, spent),
};

addEventListener("message", async ({ data: { id, kind, given } }) => {
  const spent = {};
  try {
    const answer = await answers[kind](given, spent);
    postMessage({ id, answer, seconds: spent });
  } catch (error) {
    postMessage({ id, error: error.message || String(error) });
  }
});
