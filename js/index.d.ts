/** Packed ternary BERT models in browsers, Web Workers, Node, Deno and Bun. */

/** A text, or a pair of texts. */
export type Input = string | readonly [string, string];

/** `relaxed-simd` is faster, `simd128` runs in every browser since 2023; both give the same bits. */
export type Kernel = "relaxed-simd" | "simd128";

/** The kernels that run here, best first. */
export function kernels(): Kernel[];

/** What went wrong, by the names of the Python package's errors. */
export type ErrorName =
  | "ArgumentError"
  | "UnsupportedModelError"
  | "InputError"
  | "OutOfMemoryError"
  | "KernelError"
  | "NonFiniteError"
  | "NotPackedError"
  | "FormatVersionError"
  | "UnsafeFileError"
  | "PackedConfigError"
  | "ContainerError"
  | "PackedTensorError"
  | "ReadError"
  | "EngineError";

export class TernaryBertError extends Error {
  constructor(name: ErrorName, message: string, cause?: unknown);
  name: ErrorName;
}

export interface LoadOptions {
  /** By default the best one that runs here. */
  kernel?: Kernel;
  /** Texts are truncated to so many tokens; by default to what the model reads. */
  maxLength?: number;
  /** Called while the model is downloaded; `total` is unknown if the server compresses it. */
  onProgress?: (progress: { loaded: number; total: number | undefined }) => void;
  /** Stops the download. */
  signal?: AbortSignal;
  /** The engine, if it is not beside this module: one of the package's wasm files, or its address. */
  wasm?: string | URL | Uint8Array | WebAssembly.Module;
}

/** Load a file made by `ternarybert bundle`: its path, its address, or its bytes. Its SHA-256 is checked. */
export function load(source: string | URL | Uint8Array | ArrayBuffer, options?: LoadOptions): Promise<TernaryModel>;

/** The class of a text. */
export interface Label {
  label: string;
  /** Its probability. */
  score: number;
  /** Of every label. */
  scores: Record<string, number>;
}

/** The classes of a text where several may apply, or none. */
export interface Labels {
  /** Those whose probability reaches their threshold. */
  labels: string[];
  scores: Record<string, number>;
}

/** The output of a regression. */
export interface NumberResult {
  value: number;
  values: number[];
}

export type Classification = Label | Labels | NumberResult;

/** A word of a text, or several that form an entity; `text.slice(start, end)` is it. */
export interface Word {
  text: string;
  label: string;
  score: number;
  start: number;
  end: number;
}

/** The answer to a question; the text is null if the context does not answer it. */
export interface Answer {
  text: string | null;
  score: number;
  start: number | null;
  end: number | null;
}

export interface Tokens {
  ids: Int32Array;
  types: Int32Array;
  /** Whether the text was longer than the model reads. */
  truncated: boolean;
}

export interface EmbedOptions {
  /** The mean over the tokens, the first token, or the pooler's output. */
  pooling?: "mean" | "first" | "pooler";
  /** Scale vectors to length 1; true unless set. */
  normalize?: boolean;
}

export class TernaryModel {
  private constructor();

  /** What the model's head is for. */
  readonly task: "none" | "classify" | "tag" | "answer";
  /** One label of a text, several, or a number. */
  readonly problem: "label" | "labels" | "number";
  readonly labels: string[];
  /** From which probability on each label applies where several may; one half unless the model says otherwise. */
  readonly thresholds: number[];
  /** Width of a vector. */
  readonly hidden: number;
  /** Width of the pooler's output; 0 if there is none. */
  readonly pooler: number;
  /** Tokens of a text that are read. */
  readonly maxLength: number;
  readonly kernel: Kernel;
  /** Bytes of memory of the model with its engine. */
  readonly memory: number;

  classify(text: string): Classification;
  classify(texts: readonly Input[]): Classification[];
  logits(text: string): Float32Array;
  logits(texts: readonly Input[]): Float32Array[];
  embed(text: string, options?: EmbedOptions): Float32Array;
  embed(texts: readonly Input[], options?: EmbedOptions): Float32Array[];
  /** Entities of a text. */
  entities(text: string): Word[];
  /** Every word of a text with its label. */
  words(text: string): Word[];
  answer(question: string, context: string): Answer;
  tokenize(input: Input): Tokens;

  /** Frees the memory; the model cannot be used any more. */
  close(): void;
}
