/* ternarybert: the plain C interface of the native library.
 *
 * A model is opened from a packed folder or a bundled file and takes texts (tb_open); or it is created from tensors in
 * memory (docs/reference/format.md) and run on ragged batches of token ids (tb_model_create). Every function may be
 * called from several threads, also with the same model. The only global state is a thread pool that tb_multiply keeps
 * between calls. No exception leaves the library. Returned strings are static: never free them.
 *
 * Builds by Visual C++ contain only the portable kernel, which gives the same results many times more slowly; the SIMD
 * kernels need gcc or clang.
 */
#ifndef TERNARYBERT_H
#define TERNARYBERT_H

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32) && defined(TB_BUILD)
#define TB_API __declspec(dllexport)
#elif defined(_WIN32)
#define TB_API __declspec(dllimport)
#else
#define TB_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The library's version, the same as the Python package's. */
TB_API const char *tb_version(void);

/* Instruction sets that kernels may use; the bits of tb_cpu_features(). */
enum tb_cpu_feature {
  TB_CPU_AVX2 = 1u << 0,
  TB_CPU_AVX_VNNI = 1u << 1,
  TB_CPU_AVX512BW = 1u << 2,   /* with AVX512F and AVX512VL */
  TB_CPU_AVX512VNNI = 1u << 3, /* with AVX512BW */
  TB_CPU_NEON = 1u << 4,
  TB_CPU_DOTPROD = 1u << 5,
};

/* The instruction sets that this CPU has and the operating system supports. */
TB_API uint32_t tb_cpu_features(void);

/* ---- Status ---------------------------------------------------------------------------------------------------- */

enum tb_status {
  TB_OK = 0,
  TB_ERROR_ARGUMENT = 1, /* a null pointer, or a size or enumerator out of range */
  TB_ERROR_MODEL = 2,    /* tensors or settings that are not a valid model */
  TB_ERROR_INPUT = 3,    /* a token id, type or length out of the model's range */
  TB_ERROR_MEMORY = 4,
  TB_ERROR_KERNEL = 5,  /* no such kernel, or it does not run on this CPU */
  TB_ERROR_NUMERIC = 6, /* activations became infinite or NaN */

  /* Of tb_open, one for each error of the Python reader (docs/reference/format.md, section 5). */
  TB_ERROR_NOT_PACKED = 7, /* not a packed folder or a bundled file */
  TB_ERROR_VERSION = 8,    /* a format version that this library does not read */
  TB_ERROR_FILE = 9,       /* a file that is not a regular one, or leads out of the folder */
  TB_ERROR_CONFIG = 10,    /* JSON that is malformed or does not describe the tensors; a tokenizer that is malformed */
  TB_ERROR_CONTAINER = 11, /* a file that is truncated, damaged, or has another SHA-256 */
  TB_ERROR_TENSOR = 12,    /* a tensor that is missing, or has a wrong type, shape, code or scale */
  TB_ERROR_READ = 13,      /* the system could not read a file */
};

/* A human-readable message; written by every function that returns a tb_status other than TB_OK. */
typedef struct tb_error {
  char message[256];
} tb_error;

/* ---- Model ----------------------------------------------------------------------------------------------------- */

/* A weight of rows x columns as stored in a packed folder: value[r][c] = scale[0 or r] * code[r][c]. */
typedef struct tb_matrix {
  int32_t rows; /* 0: the model has no such matrix */
  int32_t columns;
  int32_t bits;       /* 2, 3, 4, 8: codes; 32: floats */
  int32_t log;        /* 3 and 4 bits: 1 for logarithmic levels */
  int32_t dense;      /* 2 bits: 1 for five codes per byte */
  int32_t scales;     /* 1 or rows */
  const void *codes;  /* rows of packed codes, or floats */
  const float *scale; /* ignored for 32 bits */
} tb_matrix;

typedef struct tb_linear {
  tb_matrix weight;
  const float *bias; /* rows floats, or NULL */
} tb_linear;

typedef struct tb_norm {
  const float *weight; /* hidden floats, as the bias */
  const float *bias;
} tb_norm;

typedef struct tb_layer {
  tb_linear query, key, value, attention_output, up, down;
  tb_norm attention_norm, output_norm;
} tb_layer;

enum tb_function { TB_IDENTITY = 0, TB_GELU = 1, TB_GELU_TANH = 2, TB_RELU = 3, TB_TANH = 4 };
enum tb_range { TB_RANGE_TOKEN = 0, TB_RANGE_SEQUENCE = 1 };

/* A complete model. The library copies what it needs: nothing has to outlive tb_model_create. */
typedef struct tb_config {
  uint32_t size; /* sizeof(tb_config), to detect a program built with a different header */

  int32_t hidden, heads, intermediate, layers;
  int32_t positions;      /* rows of the position embedding */
  int32_t first_position; /* position of the first token: 0, or padding index + 1 for RoBERTa */
  int32_t types;          /* rows of the type embedding; 0 if there is none */
  int32_t function;       /* activation function between up and down: TB_GELU, TB_GELU_TANH or TB_RELU */
  double norm_eps;

  int32_t activation_bits; /* 2 to 8, or 32 for float activations */
  int32_t range;           /* TB_RANGE_TOKEN or TB_RANGE_SEQUENCE */
  int32_t symmetric;       /* 0: min-max */
  float clip;              /* 0: none */

  tb_matrix word;        /* vocabulary x hidden */
  const float *position; /* positions x hidden */
  const float *type;     /* types x hidden */
  tb_norm embedding_norm;
  const tb_layer *layer; /* `layers` of them */

  /* dense = function(W first_token + b): BERT's pooler, or the first half of a RoBERTa, ELECTRA or DistilBERT head. */
  tb_linear dense;
  int32_t dense_function;
  int32_t dense_quantized; /* 1 if its input is quantized, as the pooler's is */

  /* The task head. Its input is the dense layer's output if there is one, else the first token; or every token. */
  tb_linear head;
} tb_config;

typedef struct tb_model tb_model;

/* Create a model. `kernel` is one of tb_kernels(), or NULL for the best one on this CPU. `threads` is the most that one
 * call uses, including the calling thread; a call that finds the others busy with another call runs alone. After fork()
 * a child process may use the model, on the calling thread alone. */
TB_API int tb_model_create(const tb_config *config, const char *kernel, int32_t threads, tb_model **model,
                           tb_error *error);
TB_API void tb_model_free(tb_model *model);

TB_API const char *tb_model_kernel(const tb_model *model); /* the kernel's name */
TB_API uint64_t tb_model_memory(const tb_model *model);    /* bytes of the model, without working memory */

/* The names of the kernels that this CPU can run, best first; the list ends with NULL. */
TB_API const char *const *tb_kernels(void);

/* Peak speed of one core in billions of multiplications per second: a kernel's (NULL: the best one's) inner products on
 * registers, measured for half a second; 0 if there is no such kernel on this CPU. */
TB_API double tb_peak(const char *kernel);

/* ---- Running --------------------------------------------------------------------------------------------------- */

/* Sequences of token ids, back to back, without padding. */
typedef struct tb_batch {
  int32_t sequences;
  const int32_t *lengths; /* of each sequence; 1 or more */
  const int32_t *ids;     /* all tokens */
  const int32_t *types;   /* all tokens, or NULL for type 0 */
} tb_batch;

enum tb_output {
  TB_OUTPUT_HIDDEN = 0,       /* last hidden states: tokens x hidden */
  TB_OUTPUT_FIRST = 1,        /* of the first token of each sequence: sequences x hidden */
  TB_OUTPUT_MEAN = 2,         /* mean over each sequence: sequences x hidden */
  TB_OUTPUT_DENSE = 3,        /* the dense layer's output: sequences x its rows */
  TB_OUTPUT_LOGITS = 4,       /* the head's output, one row per sequence */
  TB_OUTPUT_TOKEN_LOGITS = 5, /* the head's output, one row per token */
};

/* Run the model. `size` is the number of floats in `result`, and must be exactly that of the output.
 *
 * Working memory is kept between calls, so that batches of equal size allocate nothing. It shrinks after larger ones:
 * every 32 uses (one per group of sequences, of about 128 tokens per thread) a workspace more than twice as large as
 * any of them needed is cut down to what they needed, and workspaces that were not needed are freed. */
TB_API int tb_run(const tb_model *model, const tb_batch *batch, int32_t output, float *result, size_t size,
                  tb_error *error);
/* The same on the calling thread alone: for servers, which keep the cores busy with calls from several threads. */
TB_API int tb_run_alone(const tb_model *model, const tb_batch *batch, int32_t output, float *result, size_t size,
                        tb_error *error);

/* ---- Texts ------------------------------------------------------------------------------------------------------ */

/* A packed model with its tokenizer. Tokenizers are WordPiece with BERT's normalization; others are refused by name. */
typedef struct tb_text_model tb_text_model;

/* A text, or a pair of texts: UTF-8, with its length in bytes; it need not end with a zero. */
typedef struct tb_text {
  const char *text;
  size_t bytes;
  const char *pair; /* NULL: a single text */
  size_t pair_bytes;
} tb_text;

/* Open a packed folder, or a file made by `ternarybert bundle`. Everything is read and checked; nothing is kept open.
 * `kernel` and `threads` are those of tb_model_create. Texts are truncated to `max_length` tokens; 0: to what the model
 * reads. */
TB_API int tb_open(const char *path, const char *kernel, int32_t threads, int32_t max_length, tb_text_model **model,
                   tb_error *error);
/* The same from the bytes of a bundled file, which may be freed afterwards. */
TB_API int tb_open_memory(const void *data, size_t size, const char *kernel, int32_t threads, int32_t max_length,
                          tb_text_model **model, tb_error *error);
TB_API void tb_close(tb_text_model *model);

enum tb_task { TB_TASK_NONE = 0, TB_TASK_CLASSIFY = 1, TB_TASK_TAG = 2, TB_TASK_ANSWER = 3 };
enum tb_problem { TB_PROBLEM_LABEL = 0, TB_PROBLEM_LABELS = 1, TB_PROBLEM_NUMBER = 2 };

/* What an open model is. Strings live as long as the model. */
typedef struct tb_text_info {
  int32_t task;       /* enum tb_task: what its head is for */
  int32_t problem;    /* enum tb_problem: one label of a text, several, or a number */
  int32_t labels;     /* outputs of the head; 0: it has none */
  int32_t hidden;     /* width of a vector */
  int32_t pooler;     /* width of the pooler's output; 0: there is none */
  int32_t max_length; /* tokens of a text that are read */
  const tb_model *model;
} tb_text_info;

TB_API int tb_text_model_info(const tb_text_model *model, tb_text_info *info, tb_error *error);
TB_API const char *tb_label(const tb_text_model *model, int32_t label); /* its name; NULL: there is no such label */

/* From which probability on a label applies where several may (TB_PROBLEM_LABELS): one half, unless config.json has
 * thresholds. NaN: there is no such label. */
TB_API double tb_threshold(const tb_text_model *model, int32_t label);

/* The tokens of a text. Offsets are bytes of the text or the pair, whichever the token is of. */
typedef struct tb_tokens {
  int32_t count;
  int32_t truncated; /* 1 if the text was longer than the model reads */
  int32_t *ids, *types;
  int32_t *words; /* the word that the token is of, counted in each text; -1: a special token around the texts */
  uint32_t *starts, *ends;
} tb_tokens;

TB_API int tb_tokenize(const tb_text_model *model, const tb_text *text, tb_tokens *tokens, tb_error *error);
TB_API void tb_tokens_free(tb_tokens *tokens);

/* Classify texts: a row of `labels` logits for each, `size` floats in all; and, unless `scores` is NULL, as many
 * probabilities (for a number: the logits themselves). */
TB_API int tb_classify(const tb_text_model *model, const tb_text *texts, int32_t count, float *logits, double *scores,
                       size_t size, tb_error *error);

/* Embed texts: a row for each. `output` is TB_OUTPUT_MEAN, TB_OUTPUT_FIRST or TB_OUTPUT_DENSE (the pooler);
 * `normalize` 1 scales rows to length 1. */
TB_API int tb_embed(const tb_text_model *model, const tb_text *texts, int32_t count, int32_t output, int32_t normalize,
                    float *vectors, size_t size, tb_error *error);

/* A word of a text, or several that form an entity, and its label. */
typedef struct tb_word {
  const char *label; /* lives as long as the model */
  double score;      /* its probability */
  size_t start, end; /* bytes of the text */
} tb_word;

/* Label the words of a text of any length: one that is longer than the model reads is read in windows that overlap.
 * `entities` 1 joins words by the B-, I-, E- and S- of their labels and leaves out those that are outside (O). Free the
 * words with tb_words_free. */
TB_API int tb_tag(const tb_text_model *model, const tb_text *text, int32_t entities, tb_word **words, int32_t *count,
                  tb_error *error);
TB_API void tb_words_free(tb_word *words);

/* The answer to a question: bytes `start` to `end` of the context, which may be of any length. */
typedef struct tb_span {
  int32_t found; /* 0: the context does not answer the question */
  double score;
  size_t start, end;
} tb_span;

/* `text` of the pair is the question, `pair` the context. */
TB_API int tb_answer(const tb_text_model *model, const tb_text *pair, tb_span *answer, tb_error *error);

/* ---- A single product ------------------------------------------------------------------------------------------ */

/* A linear layer on quantized inputs, y = scale * (x_scale * (codes . weight) + x_offset * sum(weight)) + bias, each
 * operation rounded by itself: for training loops, where weights change on every call. */
typedef struct tb_product {
  int32_t rows, inputs, outputs; /* inputs and outputs at most 65536 */
  int32_t scales;                /* 1 or outputs */
  const float *codes;            /* rows x inputs: integers 0 to 255, as floats */
  const float *x_scale;          /* one per row, as x_offset */
  const float *x_offset;
  const int8_t *weight; /* outputs x inputs; fastest if all are -1, 0 or 1 */
  const float *scale;
  const float *bias; /* outputs floats, or NULL */
  float *y;          /* the result: rows x outputs */
} tb_product;

/* `kernel` and `threads` as in tb_model_create. The threads are kept for the next call with the same number of threads,
 * and end with the program or when the library is unloaded; a forked child starts its own. Concurrent calls each have
 * their own threads. */
TB_API int tb_multiply(const tb_product *product, const char *kernel, int32_t threads, tb_error *error);

#ifdef __cplusplus
}
#endif
#endif
