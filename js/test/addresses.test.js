// Sizes and addresses have 32 bits and no sign. The memory is only reserved, not used.
import assert from "node:assert/strict";
import { test } from "node:test";

import { Engine } from "../engine.js";
import { TernaryModel } from "../index.js";
import { bits, bytesOf, expected, KERNELS } from "./models.js";

test("a size of more than 32 bits", async () => {
  const engine = await Engine.create({});
  for (const size of [2 ** 32, 2 ** 32 + 64, 2 ** 40]) assert.throws(() => engine.allocate(size), { name: "OutOfMemoryError" });
});

for (const kernel of KERNELS) {
  test(`a model above 2 GiB, ${kernel}`, async () => {
    const engine = await Engine.create({ kernel });
    engine.memory.grow(2 ** 31 / 2 ** 16);
    assert.ok(engine.allocate(1 << 20) > 2 ** 31);
    const wanted = expected("classifier");
    const model = new TernaryModel(engine, bytesOf("classifier"), 0);
    assert.equal(model.kernel, kernel);
    assert.deepEqual(model.labels, ["LABEL_0", "LABEL_1", "LABEL_2"]);
    assert.equal(bits(model.logits(wanted.texts)), wanted.logits);
    assert.equal(bits(model.embed(wanted.texts)), wanted.mean);
    assert.equal(model.tokenize("not ".repeat(100)).ids.length, model.maxLength);
    const tagger = new TernaryModel(engine, bytesOf("entities"), 0);
    assert.equal(tagger.words("the film was good")[1].text, "film");
    const answerer = new TernaryModel(engine, bytesOf("answers"), 0);
    assert.equal(typeof answerer.answer("was it fun", "the film was good").score, "number");
  });
}
