/* The engine from C: a model of one layer with made-up weights, two sequences, their logits.
 *
 *   cc classify.c -lternarybert -o classify
 *
 * A real program reads the arrays from a packed folder; docs/reference/format.md describes them. */
#include <ternarybert.h>

#include <stdio.h>
#include <stdlib.h>

enum { HIDDEN = 32, HEADS = 2, INTERMEDIATE = 64, WORDS = 100, POSITIONS = 16, LABELS = 3 };

/* All allocations, to be freed at the end. */
static void *allocated[16];
static int allocations;

static void *allocate(size_t bytes) { return allocated[allocations++] = malloc(bytes); }

/* Ternary codes, four a byte: 0, 1, 2 stand for -1, 0, 1. */
static tb_matrix ternary(int rows, int columns, const float *scale) {
  const size_t bytes = (size_t)rows * (size_t)columns / 4;
  unsigned char *codes = allocate(bytes);
  size_t i;
  int code;
  for (i = 0; i < bytes; i++)
    for (codes[i] = 0, code = 0; code < 4; code++)
      codes[i] |= (unsigned char)((rand() % 3) << (2 * code));
  return (tb_matrix){.rows = rows, .columns = columns, .bits = 2, .scales = 1, .codes = codes, .scale = scale};
}

static float *constant(size_t count, float value) {
  float *x = allocate(count * sizeof *x);
  while (count > 0)
    x[--count] = value;
  return x;
}

int main(void) {
  static const float scale = 0.1f;
  const tb_norm norm = {constant(HIDDEN, 1.0f), constant(HIDDEN, 0.0f)};
  tb_layer layer = {.attention_norm = norm, .output_norm = norm};
  tb_linear *const square[4] = {&layer.query, &layer.key, &layer.value, &layer.attention_output};
  for (int i = 0; i < 4; i++)
    square[i]->weight = ternary(HIDDEN, HIDDEN, &scale);
  layer.up.weight = ternary(INTERMEDIATE, HIDDEN, &scale);
  layer.down.weight = ternary(HIDDEN, INTERMEDIATE, &scale);

  tb_config config = {
      .size = sizeof config,
      .hidden = HIDDEN,
      .heads = HEADS,
      .intermediate = INTERMEDIATE,
      .layers = 1,
      .positions = POSITIONS,
      .function = TB_GELU,
      .norm_eps = 1e-12,
      .activation_bits = 8,
      .range = TB_RANGE_TOKEN,
      .word = ternary(WORDS, HIDDEN, &scale),
      .position = constant((size_t)POSITIONS * HIDDEN, 0.0f),
      .embedding_norm = norm,
      .layer = &layer,
      .head = {.weight = ternary(LABELS, HIDDEN, &scale)},
  };

  tb_model *model;
  tb_error error;
  const int made = tb_model_create(&config, NULL, 1, &model, &error);
  while (allocations > 0)
    free(allocated[--allocations]); /* the model has its own copy */
  if (made != TB_OK) {
    fprintf(stderr, "%s\n", error.message);
    return 1;
  }

  const int32_t lengths[] = {3, 5}, ids[] = {7, 8, 9, 10, 11, 12, 13, 14};
  const tb_batch batch = {.sequences = 2, .lengths = lengths, .ids = ids};
  float logits[2 * LABELS];
  const int status = tb_run(model, &batch, TB_OUTPUT_LOGITS, logits, 2 * LABELS, &error);
  if (status != TB_OK) fprintf(stderr, "%s\n", error.message);
  for (int s = 0; s < 2 && status == TB_OK; s++)
    printf("%s: %8.4f %8.4f %8.4f\n", tb_model_kernel(model), logits[s * LABELS], logits[s * LABELS + 1],
           logits[s * LABELS + 2]);
  tb_model_free(model);
  return status;
}
