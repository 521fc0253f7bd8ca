// The bytes of a file or an address, in browsers and elsewhere, with progress.
import { shown, TernaryBertError } from "./errors.js";

// Node, Deno and Bun all have Node's modules.
export const HAS_FILES = typeof process !== "undefined" && Boolean(process.versions?.node);
// Not written into the import: bundlers for browsers look for what is, and fail.
const FILES = "node:fs/promises";

/** @param {string | URL} source */
export function placeOf(source) {
  if (source instanceof URL) return source;
  if (typeof source !== "string")
    throw new TernaryBertError("ArgumentError", `a path, an address or bytes are needed, not ${shown(source)}`);
  if (HAS_FILES && !/^[a-z][a-z0-9+.-]+:/i.test(source)) return source;
  const base = typeof document === "undefined" ? globalThis.location?.href : document.baseURI;
  try {
    return new URL(source, base);
  } catch {
    if (HAS_FILES) return source; // a file's name may look like an address
    throw new TernaryBertError("ReadError", `${source} is not an address`);
  }
}

/**
 * @param {string | URL} source
 * @param {{ onProgress?: import("./index.js").LoadOptions["onProgress"], signal?: AbortSignal }} options
 * @returns {Promise<Uint8Array>}
 */
export async function readBytes(source, options) {
  const place = placeOf(source);
  if (HAS_FILES && (typeof place === "string" || place.protocol === "file:")) {
    const { readFile } = await import(/* webpackIgnore: true */ /* @vite-ignore */ FILES);
    try {
      return await readFile(place, { signal: options.signal });
    } catch (error) {
      throw readError(source, /** @type {Error} */ (error));
    }
  }
  try {
    const response = await fetch(place, { signal: options.signal });
    if (!response.ok) throw new Error(`status ${response.status}`);
    return await bodyOf(response, options.onProgress);
  } catch (error) {
    throw readError(source, /** @type {Error} */ (error));
  }
}

/** @param {string | URL} source @param {Error} error */
function readError(source, error) {
  if (error.name === "AbortError") return error;
  return new TernaryBertError("ReadError", `${source} cannot be read: ${error.message}`, error);
}

/**
 * @param {Response} response
 * @param {import("./index.js").LoadOptions["onProgress"]} onProgress
 */
async function bodyOf(response, onProgress) {
  if (!onProgress || !response.body) return new Uint8Array(await response.arrayBuffer());
  // The length of what travels: of a compressed answer it is not the length of the file.
  const compressed = response.headers.get("content-encoding");
  const total = compressed ? undefined : Number(response.headers.get("content-length")) || undefined;
  /** @type {Uint8Array[]} */
  const parts = [];
  let loaded = 0;
  const reader = response.body.getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    parts.push(value);
    loaded += value.length;
    onProgress({ loaded, total });
  }
  const all = new Uint8Array(loaded);
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}
