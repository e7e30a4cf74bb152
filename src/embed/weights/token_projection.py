#!/usr/bin/env python3
"""Writes token-projection.bf16: the projection of the built-in model's token vectors to 64 dimensions.

usage: token_projection.py CORPUS [OUT]

CORPUS is `docs-qa/corpus.jsonl` of the retrieval sets (stress/datasets/README.md). The columns are the first 64
principal components, without centring, of the normalised token vectors of its texts, each text cut at 256 tokens and
without its special tokens. OUT is [384, 64] bfloat16, little endian, row by row.

Needs numpy, onnxruntime and tokenizers.
"""

import json
import pathlib
import sys

import numpy as np
import onnxruntime
import tokenizers

DIMENSIONS = 64
HERE = pathlib.Path(__file__).parent


def main(corpus, out):
    tokenizer = tokenizers.Tokenizer.from_file(str(HERE / "tokenizer-256-nopad.json"))
    session = onnxruntime.InferenceSession(str(HERE / "minilm-w8.onnx"))
    moments = np.zeros((384, 384))
    for line in open(corpus, encoding="utf-8"):
        ids = np.array([tokenizer.encode(json.loads(line)["text"]).ids], dtype=np.int64)
        inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        hidden = session.run(["last_hidden_state"], inputs)[0][0, 1:-1].astype(np.float64)
        hidden /= np.linalg.norm(hidden, axis=1, keepdims=True)
        moments += hidden.T @ hidden
    energy, axes = np.linalg.eigh(moments)
    axes = axes[:, ::-1][:, :DIMENSIONS]
    # The sign of an axis is arbitrary: its largest number is positive.
    axes *= np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(DIMENSIONS)])
    bits = axes.astype("<f4").view("<u4")
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    pathlib.Path(out).write_bytes(rounded.astype("<u2").tobytes())
    print(f"kept energy: {energy[::-1][:DIMENSIONS].sum() / energy.sum():.3f}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else HERE / "token-projection.bf16")
