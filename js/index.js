// Packed models on the reader's machine: `load` a bundled file (`ternarybert bundle`), then classify, embed, find
// entities, answer questions. Methods return at once with the answer; call them in a Web Worker to keep a page fluid.
import { Engine, kernels } from "./engine.js";
import { shown, TernaryBertError } from "./errors.js";
import { readBytes } from "./source.js";

export { kernels, TernaryBertError };

/** @typedef {string | readonly [string, string]} Input */

// enum tb_task, tb_problem and tb_output of native/include/ternarybert.h
const TASKS = /** @type {const} */ (["none", "classify", "tag", "answer"]);
const PROBLEMS = /** @type {const} */ (["label", "labels", "number"]);
const POOLINGS = { first: 1, mean: 2, pooler: 3 };

/**
 * @param {string | URL | Uint8Array | ArrayBuffer} source
 * @param {import("./index.js").LoadOptions} [options]
 */
export async function load(source, options = {}) {
  const given = source instanceof ArrayBuffer ? new Uint8Array(source) : source;
  const [engine, bytes] = await Promise.all([
    Engine.create(options),
    given instanceof Uint8Array ? given : readBytes(given, options),
  ]);
  return new TernaryModel(engine, bytes, options.maxLength ?? 0);
}

export class TernaryModel {
  /** @type {Engine | null} */
  #engine;
  #handle = 0;

  /**
   * @param {Engine} engine
   * @param {Uint8Array} bytes
   * @param {number} maxLength
   */
  constructor(engine, bytes, maxLength) {
    this.#engine = engine;
    engine.withScratch((scratch) => {
      const data = scratch(bytes.length);
      engine.bytes.set(bytes, data);
      const model = scratch(4);
      engine.call("tb_open_memory", data, bytes.length, 0, 1, maxLength, model);
      this.#handle = engine.view.getUint32(model, true);
      const info = scratch(28);
      engine.call("tb_text_model_info", this.#handle, info);
      const [task, problem, labels, hidden, pooler, longest, inner] = engine.integers(info, 7);
      this.task = TASKS[task];
      this.problem = PROBLEMS[problem];
      this.hidden = hidden;
      this.pooler = pooler;
      this.maxLength = longest;
      this.kernel = engine.text(engine.functions.tb_model_kernel(inner));
      this.labels = Array.from({ length: labels }, (_, i) => engine.text(engine.functions.tb_label(this.#handle, i)));
      this.thresholds = this.labels.map((_, i) => engine.functions.tb_threshold(this.#handle, i));
    });
  }

  get #open() {
    if (!this.#engine) throw new TernaryBertError("ArgumentError", "the model is closed");
    return this.#engine;
  }

  /** Memory of the model and its engine, in bytes. */
  get memory() {
    return this.#open.memory.buffer.byteLength;
  }

  /** @param {Input | readonly Input[]} input */
  logits(input) {
    return many(input, (texts) => this.#classify(texts).map(({ logits }) => logits));
  }

  /** @param {Input | readonly Input[]} input */
  classify(input) {
    return many(input, (texts) => this.#classify(texts).map((row) => this.#result(row)));
  }

  /** @param {[string, string?][]} texts @returns {{ logits: Float32Array, scores: Float64Array }[]} */
  #classify(texts) {
    const engine = this.#open;
    const width = this.labels.length;
    const size = width * texts.length;
    return engine.withScratch((scratch) => {
      const place = engine.writeTexts(scratch, texts);
      const logits = scratch(4 * size);
      const scores = scratch(8 * size);
      engine.call("tb_classify", this.#handle, place, texts.length, logits, scores, size);
      return texts.map((_, i) => ({
        logits: engine.floats(logits + 4 * width * i, width),
        scores: engine.doubles(scores + 8 * width * i, width),
      }));
    });
  }

  /** @param {{ logits: Float32Array, scores: Float64Array }} row */
  #result({ scores }) {
    if (this.problem === "number") return { value: scores[0], values: [...scores] };
    const byLabel = Object.fromEntries(this.labels.map((label, i) => [label, scores[i]]));
    if (this.problem === "labels")
      return { labels: this.labels.filter((_, i) => scores[i] >= this.thresholds[i]), scores: byLabel };
    const best = scores.indexOf(Math.max(...scores));
    return { label: this.labels[best], score: scores[best], scores: byLabel };
  }

  /**
   * @param {Input | readonly Input[]} input
   * @param {import("./index.js").EmbedOptions} [options]
   */
  embed(input, { pooling = "mean", normalize = true } = {}) {
    const output = POOLINGS[pooling];
    if (!output)
      throw new TernaryBertError("ArgumentError", `pooling ${pooling} is none of ${Object.keys(POOLINGS).join(", ")}`);
    const width = pooling === "pooler" ? this.pooler : this.hidden;
    return many(input, (texts) => {
      const engine = this.#open;
      return engine.withScratch((scratch) => {
        const place = engine.writeTexts(scratch, texts);
        const vectors = scratch(4 * width * texts.length);
        const size = width * texts.length;
        engine.call("tb_embed", this.#handle, place, texts.length, output, normalize ? 1 : 0, vectors, size);
        return texts.map((_, i) => engine.floats(vectors + 4 * width * i, width));
      });
    });
  }

  /** @param {string} text */
  entities(text) {
    return this.#tag(text, 1);
  }

  /** @param {string} text */
  words(text) {
    return this.#tag(text, 0);
  }

  /** @param {string} text @param {number} joined */
  #tag(text, joined) {
    const engine = this.#open;
    const [pair] = asTexts([text]);
    return engine.withScratch((scratch) => {
      const place = engine.writeTexts(scratch, [pair]);
      const found = scratch(8);
      engine.call("tb_tag", this.#handle, place, joined, found, found + 4);
      const words = engine.view.getUint32(found, true);
      const count = engine.view.getInt32(found + 4, true);
      const view = engine.view;
      const result = Array.from({ length: count }, (_, i) => {
        const at = words + 24 * i;
        const bytes = [view.getUint32(at + 16, true), view.getUint32(at + 20, true)];
        const [start, end] = charactersOf(text, bytes);
        const label = engine.text(view.getUint32(at, true));
        return { text: text.slice(start, end), label, score: view.getFloat64(at + 8, true), start, end };
      });
      engine.functions.tb_words_free(words);
      return result;
    });
  }

  /** @param {string} question @param {string} context */
  answer(question, context) {
    const engine = this.#open;
    const [pair] = asTexts([[question, context]]);
    return engine.withScratch((scratch) => {
      const place = engine.writeTexts(scratch, [pair]);
      const span = scratch(24);
      engine.call("tb_answer", this.#handle, place, span);
      const view = engine.view;
      const score = view.getFloat64(span + 8, true);
      if (!view.getInt32(span, true)) return { text: null, score, start: null, end: null };
      const [start, end] = charactersOf(context, [view.getUint32(span + 16, true), view.getUint32(span + 20, true)]);
      return { text: context.slice(start, end), score, start, end };
    });
  }

  /** @param {Input} input */
  tokenize(input) {
    const engine = this.#open;
    const texts = asTexts([input]);
    return engine.withScratch((scratch) => {
      const place = engine.writeTexts(scratch, texts);
      const tokens = scratch(28);
      engine.call("tb_tokenize", this.#handle, place, tokens);
      const [count, truncated, ids, types] = engine.integers(tokens, 4);
      const result = {
        ids: engine.integers(ids >>> 0, count),
        types: engine.integers(types >>> 0, count),
        truncated: truncated === 1,
      };
      engine.functions.tb_tokens_free(tokens);
      return result;
    });
  }

  /** Frees the model's memory; it cannot be used any more. */
  close() {
    this.#engine = null; // and with it its instance of the engine, which has nothing but this model
  }

  [Symbol.dispose ?? Symbol.for("Symbol.dispose")]() {
    this.close();
  }
}

/** @param {readonly Input[]} inputs @returns {[string, string?][]} */
function asTexts(inputs) {
  return inputs.map((input) => {
    const parts = typeof input === "string" ? [input] : input;
    if (!Array.isArray(parts) || parts.length < 1 || parts.length > 2 || parts.some((part) => typeof part !== "string"))
      throw new TernaryBertError("InputError", `a text is a string, or two strings in a list: ${shown(input)}`);
    return /** @type {[string, string?]} */ ([...parts]);
  });
}

/**
 * One result for one text, a list for a list.
 * @template T
 * @param {Input | readonly Input[]} input
 * @param {(texts: [string, string?][]) => T[]} f
 */
function many(input, f) {
  if (typeof input === "string") return f(asTexts([input]))[0];
  if (!Array.isArray(input)) throw new TernaryBertError("InputError", `texts are a string or a list, not ${shown(input)}`);
  return input.length === 0 ? [] : f(asTexts(input));
}

/** Places in a string, from increasing places in its UTF-8 form. @param {string} text @param {number[]} places */
function charactersOf(text, places) {
  const found = [];
  let byte = 0;
  let at = 0;
  for (const place of places) {
    while (byte < place && at < text.length) {
      const code = /** @type {number} */ (text.codePointAt(at));
      byte += code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
      at += code < 0x10000 ? 1 : 2;
    }
    found.push(at);
  }
  return found;
}
