// The same answers as in Python: bits of logits and vectors, labels, entities, answers, tokens, with both kernels.
import assert from "node:assert/strict";
import { test } from "node:test";

import { load } from "../index.js";
import { bits, bytesOf, expected, KERNELS, pathOf } from "./models.js";

/** Scores come from the platform's exp: the last digit may differ. @param {any} found @param {any} wanted */
function assertClose(found, wanted) {
  if (typeof wanted === "number" && !Number.isInteger(wanted)) {
    assert.ok(Math.abs(found - wanted) <= 1e-13 * Math.abs(wanted), `${found} is not ${wanted}`);
  } else if (wanted !== null && typeof wanted === "object") {
    assert.deepEqual(Object.keys(found), Object.keys(wanted));
    for (const key of Object.keys(wanted)) assertClose(found[key], wanted[key]);
  } else {
    assert.equal(found, wanted);
  }
}

test("simd128 runs everywhere", () => assert.ok(KERNELS.includes("simd128")));

for (const kernel of KERNELS) {
  for (const name of ["classifier", "labels", "number", "reference", "distilbert", "minilm"]) {
    test(`${name}, ${kernel}`, async () => {
      const model = await load(pathOf(name), { kernel });
      const wanted = expected(name);
      assert.equal(model.kernel, kernel);
      assert.equal(model.task, "classify");
      assert.equal(bits(model.logits(wanted.texts)), wanted.logits);
      assert.equal(bits(model.embed(wanted.texts)), wanted.mean);
      if (name === "minilm") return; // 500 texts
      assert.equal(bits(model.embed(wanted.texts, { pooling: "first" })), wanted.first);
      assertClose(model.classify(wanted.texts), wanted.results);
      assertClose(model.classify(wanted.texts[0]), wanted.results[0]);
    });
  }

  test(`vectors, ${kernel}`, async () => {
    const model = await load(pathOf("embedder"), { kernel });
    const wanted = expected("embedder");
    assert.equal(model.task, "none");
    for (const pooling of ["mean", "first", "pooler"])
      assert.equal(bits(model.embed(wanted.texts, { pooling })), wanted[pooling], pooling);
    assert.equal(bits([model.embed("fun")]), bits(model.embed(["fun"])));
    assert.deepEqual(model.embed([]), []);
  });

  test(`entities, ${kernel}`, async () => {
    const model = await load(pathOf("entities"), { kernel });
    const { texts, results } = expected("entities");
    texts.forEach((text, i) => {
      for (const kind of ["words", "entities"]) {
        const found = model[kind](text);
        assertClose(
          found.map(({ text, label, score }) => ({ text, label, score })),
          results[i][kind].map(({ text, label, score }) => ({ text, label, score })),
        );
        for (const word of found) assert.equal(text.slice(word.start, word.end), word.text);
      }
    });
  });

  test(`answers, ${kernel}`, async () => {
    const model = await load(pathOf("answers"), { kernel });
    const { texts, results } = expected("answers");
    texts.forEach(([question, context], i) => {
      const found = model.answer(question, context);
      assert.equal(found.text, results[i].answer);
      assertClose(found.score, results[i].score);
      if (found.text !== null) assert.equal(context.slice(found.start, found.end), found.text);
    });
  });
}

test("tokens are those of Hugging Face", async () => {
  const model = await load(pathOf("tokens"));
  const { texts, ids, types } = expected("tokens");
  texts.forEach((text, i) => {
    const found = model.tokenize(text);
    assert.deepEqual([...found.ids], ids[i], JSON.stringify(text));
    assert.deepEqual([...found.types], types[i], JSON.stringify(text));
  });
  // Half of a surrogate pair is no character: it is read as U+FFFD.
  assert.deepEqual(model.tokenize("a\ud800b"), model.tokenize("a\ufffdb"));
});

test("bytes, a buffer, a path and an address", async () => {
  const bytes = bytesOf("classifier");
  const wanted = (await load(bytes)).logits("fun");
  const server = (await import("node:http")).createServer((_, answer) => answer.end(bytes));
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  const address = `http://127.0.0.1:${server.address().port}/m.tbert`;
  let last = 0;
  const onProgress = ({ loaded }) => (last = loaded);
  for (const source of [bytes.buffer.slice(0), new URL(`file://${pathOf("classifier")}`), address])
    assert.deepEqual((await load(source, { onProgress })).logits("fun"), wanted);
  assert.equal(last, bytes.length);
  server.close();
});

test("a limit on tokens", async () => {
  const model = await load(pathOf("classifier"), { maxLength: 8 });
  assert.equal(model.maxLength, 8);
  assert.equal(model.tokenize("not ".repeat(20)).ids.length, 8);
  assert.equal(model.tokenize("not ".repeat(20)).truncated, true);
});

test("many calls do not grow the memory", async () => {
  const model = await load(pathOf("classifier"));
  const texts = Array(20).fill("not ".repeat(40));
  model.classify(texts);
  const before = model.memory;
  for (let i = 0; i < 50; i++) model.classify(texts);
  assert.equal(model.memory, before);
});
