// The model, in a worker of its own, so that typing never waits for it.
import { load } from "./ternarybert/index.js";

/** @type {import("./ternarybert/index.js").TernaryModel} */
let model;
const vectors = new Map(); // of passages and labels that were seen

async function start() {
  const begin = performance.now();
  model = await load("model.tbert", { onProgress: (progress) => postMessage({ progress }) });
  const files = performance.getEntriesByType("resource").filter(({ name }) => /\.(wasm|tbert)$/.test(name));
  const bytes = files.reduce((sum, file) => sum + (file.encodedBodySize || file.decodedBodySize), 0);
  return { bytes, kernel: model.kernel, task: model.task, time: performance.now() - begin };
}

function vectorsOf(texts) {
  const unknown = [...new Set(texts)].filter((text) => !vectors.has(text));
  model.embed(unknown).forEach((vector, i) => vectors.set(unknown[i], vector));
  return texts.map((text) => vectors.get(text));
}

/** Texts by their similarity to one, the nearest first. */
function nearest(text, others) {
  const begin = performance.now();
  const vector = model.embed(text);
  const rows = vectorsOf(others).map((other, i) => ({
    text: others[i],
    score: other.reduce((sum, x, j) => sum + x * vector[j], 0),
  }));
  rows.sort((a, b) => b.score - a.score);
  return { rows, time: performance.now() - begin };
}

function classify(text, labels) {
  if (model.task !== "classify") return nearest(text, labels);
  const begin = performance.now();
  const { scores } = model.classify(text);
  const rows = Object.entries(scores).map(([text, score]) => ({ text, score }));
  rows.sort((a, b) => b.score - a.score);
  return { rows, time: performance.now() - begin };
}

const ANSWERS = {
  load: start,
  search: ({ query, passages }) => nearest(query, passages),
  classify: ({ text, labels }) => classify(text, labels),
};

onmessage = async ({ data }) => {
  try {
    postMessage({ number: data.number, result: await ANSWERS[data.kind](data) });
  } catch (error) {
    postMessage({ number: data.number, error: `${error.name}: ${error.message}` });
  }
};
