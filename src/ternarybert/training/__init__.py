"""Distillation-aware ternarization: losses, BertAdam, the trainer, and the jobs made of them."""

from __future__ import annotations
