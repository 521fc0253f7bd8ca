"""Training in torch: `finetune`, `ternarize` and `evaluate`, and what they share."""
