// Never run: `tsc` checks that the types say what a program may do.
import { kernels, load, TernaryBertError, type Classification, type Kernel } from "ternarybert";

const model = await load(new URL("https://example.org/model.tbert"), {
  kernel: kernels()[0],
  onProgress: ({ loaded, total }) => console.log(loaded, total ?? "unknown"),
});
const one: Classification = model.classify("a good film");
const many: Classification[] = model.classify(["a good film", ["a question", "an answer"]]);
const vector: Float32Array = model.embed("a good film", { pooling: "first", normalize: false });
const vectors: Float32Array[] = model.embed(["a", "b"]);
const places: [number, number][] = model.entities("Ada").map(({ start, end }) => [start, end]);
const answer: string | null = model.answer("who?", "Ada").text;
if ("label" in one) console.log(one.label, one.score);
console.log(many, vector, vectors, places, answer);
model.close();

try {
  await load(new Uint8Array(8));
} catch (error) {
  if (error instanceof TernaryBertError && error.name === "ContainerError") console.log(error.message);
}

// @ts-expect-error there is no such kernel
const wrong: Kernel = "avx2";
// @ts-expect-error a model is loaded, not constructed
new (await import("ternarybert")).TernaryModel();
// @ts-expect-error a text is no number
model.classify(3);
console.log(wrong);
