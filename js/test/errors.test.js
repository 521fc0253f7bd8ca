// What is wrong is a rejected promise or a thrown error with a name, and everything works afterwards.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import { pathToFileURL } from "node:url";

import { load, TernaryBertError } from "../index.js";
import { bits, bytesOf, expected, KERNELS, pathOf } from "./models.js";

/** @param {() => any} f @param {string} name @param {RegExp} message */
async function refused(f, name, message = /./) {
  await assert.rejects(async () => await f(), (error) => {
    assert.ok(error instanceof TernaryBertError, String(error));
    assert.equal(error.name, name, error.message);
    assert.match(error.message, message);
    return true;
  });
}

/** A bundle with other content and a hash that fits. @param {Uint8Array} bytes @param {(text: Buffer) => void} change */
function rewritten(bytes, change) {
  const copy = Buffer.from(bytes);
  change(copy);
  createHash("sha256").update(copy.subarray(40)).digest().copy(copy, 8);
  return new Uint8Array(copy);
}

for (const kernel of KERNELS) {
  test(`bundles that cannot be used, ${kernel}`, async () => {
    const good = bytesOf("classifier");
    for (const length of [40, 47, 100, good.length >> 1, good.length - 1])
      await refused(() => load(good.subarray(0, length), { kernel }), "ContainerError");
    for (const place of [9, 60, good.length >> 1, good.length - 1]) {
      const damaged = good.slice();
      damaged[place] ^= 1;
      await refused(() => load(damaged, { kernel }), "ContainerError", /SHA-256/);
    }
    await refused(() => load(new Uint8Array(0), { kernel }), "NotPackedError");
    await refused(() => load(new TextEncoder().encode("<!doctype html>"), { kernel }), "NotPackedError");
    const newer = good.slice();
    newer[7] = 2;
    await refused(() => load(newer, { kernel }), "FormatVersionError", /2/);
    const newerFolder = rewritten(good, (copy) => {
      const place = copy.indexOf('"format_version"');
      assert.ok(place > 0);
      copy[copy.indexOf("2", place)] = 0x39;
    });
    await refused(() => load(newerFolder, { kernel }), "FormatVersionError", /9/);
    await refused(() => load(pathOf("bpe"), { kernel }), "UnsupportedModelError", /BPE/);
    assert.equal(bits((await load(good, { kernel })).logits(expected("classifier").texts)), expected("classifier").logits);
  });
}

test("files and addresses that cannot be read", async () => {
  await refused(() => load(pathOf("nothing")), "ReadError", /nothing\.tbert/);
  await refused(() => load("http://127.0.0.1:1/m.tbert"), "ReadError");
  await refused(() => load(pathOf("classifier"), { wasm: pathOf("classifier") }), "EngineError", /compile/);
  const foreign = new Uint8Array([0, 0x61, 0x73, 0x6d, 1, 0, 0, 0]); // an empty module
  for (const wasm of [foreign, new WebAssembly.Module(foreign)])
    await refused(() => load(pathOf("classifier"), { wasm }), "EngineError", /not the engine/);
  await refused(() => load(pathOf("classifier"), { wasm: /** @type {any} */ (3) }), "ArgumentError", /3/);
  for (const source of [undefined, null, 3, {}, 10n, new Float32Array(1e6)])
    await refused(() => load(/** @type {any} */ (source)), "ArgumentError", /^.{0,80}bytes are needed.{0,99}$/);
  await refused(() => load(pathOf("classifier"), { kernel: /** @type {any} */ ("avx2") }), "KernelError", /avx2/);
  const stopped = new AbortController();
  stopped.abort();
  await assert.rejects(load(pathOf("classifier"), { signal: stopped.signal }), { name: "AbortError" });
});

test("addresses without URL.canParse, as in Node 18", async (t) => {
  const { canParse } = URL;
  t.after(() => (URL.canParse = canParse));
  URL.canParse = undefined;
  for (const address of ["http://127.0.0.1:1/m.tbert", "ab:c", "http://[/m.tbert"])
    await refused(() => load(address), "ReadError");
  assert.equal((await load(pathToFileURL(pathOf("classifier")).href)).task, "classify");
});

test("calls that cannot be answered", async () => {
  const model = await load(pathOf("classifier"));
  await refused(() => model.entities("a"), "UnsupportedModelError", /label words/);
  await refused(() => model.answer("a", "b"), "UnsupportedModelError", /answer questions/);
  await refused(() => model.classify(/** @type {any} */ ([3])), "InputError", /3/);
  await refused(() => model.classify(/** @type {any} */ ([10n])), "InputError", /10n/);
  const circle = [];
  circle.push(circle);
  for (const wrong of [undefined, null, 3, {}, 10n, [circle]])
    for (const call of ["classify", "logits", "embed", "tokenize", "entities"])
      await refused(() => model[call](wrong), "InputError", /text/);
  await refused(() => model.classify(/** @type {any} */ ([["a", "b", "c"]])), "InputError");
  await refused(() => model.embed("a", { pooling: /** @type {any} */ ("max") }), "ArgumentError", /max/);
  await refused(() => load(pathOf("classifier"), { maxLength: 4 }), "ArgumentError", /5 to 64/);
  assert.equal(bits(model.logits(expected("classifier").texts)), expected("classifier").logits);
  model.close();
  await refused(() => model.classify("a"), "ArgumentError", /closed/);
});
