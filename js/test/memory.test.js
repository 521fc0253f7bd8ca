// Out of memory, really: V8 lets no module grow beyond 4 MB here, as a small phone would not beyond some size.
import assert from "node:assert/strict";
import { test } from "node:test";
import { setFlagsFromString } from "node:v8";

import { load } from "../index.js";
import { bits, expected, KERNELS, pathOf } from "./models.js";

setFlagsFromString("--wasm-max-mem-pages=64");

for (const kernel of KERNELS) {
  test(`the page goes on, ${kernel}`, async () => {
    const small = await load(pathOf("classifier"), { kernel });
    const outOfMemory = { name: "OutOfMemoryError" };
    await assert.rejects(load(pathOf("minilm"), { kernel }), outOfMemory);
    assert.throws(() => small.classify(Array(100_000).fill("not ".repeat(60))), outOfMemory);
    assert.throws(() => small.classify("not ".repeat(4_000_000)), outOfMemory);
    assert.ok(small.memory > 0);
    const { texts, logits } = expected("classifier");
    assert.equal(bits(small.logits(texts)), logits);
    assert.equal(bits((await load(pathOf("classifier"), { kernel })).logits(texts)), logits);
  });
}
