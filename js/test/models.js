// The models and the answers that tests/js/models.py made: `pytest tests/js` runs these tests.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { setFlagsFromString } from "node:v8";

import { kernels } from "../index.js";

// Node 20 has relaxed SIMD behind a flag, later ones have it without.
if (!kernels().includes("relaxed-simd")) setFlagsFromString("--experimental-wasm-relaxed-simd");

const FOLDER = process.env.TERNARYBERT_MODELS;
if (!FOLDER) throw new Error("run these tests with `make js-test`, which makes the models first");

export const KERNELS = kernels();

/** @param {string} name */
export const pathOf = (name) => join(FOLDER, `${name}.tbert`);

/** @param {string} name */
export const bytesOf = (name) => new Uint8Array(readFileSync(pathOf(name)));

/** @param {string} name */
export const expected = (name) => JSON.parse(readFileSync(join(FOLDER, `${name}.json`), "utf8"));

/** The bits of rows of float32 numbers, as Python wrote them. @param {Float32Array[]} rows */
export const bits = (rows) =>
  Buffer.concat(rows.map((row) => Buffer.from(row.buffer, row.byteOffset, row.byteLength))).toString("base64");
