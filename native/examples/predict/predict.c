/* Texts in, answers out: predict MODEL TEXT... classifies texts, or embeds them if the model has no classes.
 *
 * MODEL is a packed folder, or a file made by `ternarybert bundle`. */
#include "ternarybert.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(const tb_error *error) {
  fprintf(stderr, "predict: %s\n", error->message);
  return 2;
}

int main(int count, char **arguments) {
  if (count < 3) {
    fprintf(stderr, "usage: predict MODEL TEXT...\n");
    return 2;
  }
  tb_error error;
  tb_text_model *model;
  tb_text_info info;
  if (tb_open(arguments[1], NULL, 1, 0, &model, &error) != TB_OK) return fail(&error);
  tb_text_model_info(model, &info, &error);

  int status = TB_OK;
  const size_t width = info.task == TB_TASK_CLASSIFY ? (size_t)info.labels : (size_t)info.hidden;
  float *row = malloc(width * sizeof *row);
  double *scores = malloc(width * sizeof *scores);
  for (int i = 2; i < count && status == TB_OK && row && scores; i++) {
    const tb_text text = {.text = arguments[i], .bytes = strlen(arguments[i])};
    if (info.task == TB_TASK_CLASSIFY) {
      status = tb_classify(model, &text, 1, row, scores, width, &error);
      for (int label = 0; label < info.labels && status == TB_OK; label++)
        printf("%s %.6f%s", tb_label(model, label), scores[label], label + 1 < info.labels ? "  " : "\n");
    } else {
      status = tb_embed(model, &text, 1, TB_OUTPUT_MEAN, 1, row, width, &error);
      for (size_t k = 0; k < width && status == TB_OK; k++)
        printf("%.6f%s", row[k], k + 1 < width ? " " : "\n");
    }
  }
  if (status != TB_OK) fail(&error);
  free(row);
  free(scores);
  tb_close(model);
  return status == TB_OK ? 0 : 2;
}
