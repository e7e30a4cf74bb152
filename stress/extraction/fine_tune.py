"""Fine-tunes the built-in model to tell lessons from the rest; `evaluate.py train` uses it. Needs jax, optax, onnx, tokenizers.

The changes are of low rank (Hu et al., 2021), in the last three layers, so that the others need to run once for each text.
`src/embed/classifier.rs` reads what `save` writes.
"""

import os

import jax
import jax.numpy as jnp
import numpy
import onnx
import optax
from onnx import numpy_helper
from tokenizers import Tokenizer

MODEL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../src/embed/weights")
TOKENS, LAYERS, UNCHANGED, HEADS, RANK = 96, 6, 3, 12, 8
CHANGED = ("attention.self.query", "attention.self.value", "intermediate.dense", "output.dense")
# Chosen on repositories that were left out.
EPOCHS, RATE, BATCH, DROPOUT = 8, 1.5e-3, 32, 0.2
AT_ONCE = 64


def read_model():
    found = {one.name: numpy_helper.to_array(one) for one in onnx.load(f"{MODEL}/minilm-w8.onnx").graph.initializer}
    weights = {}
    for name, values in found.items():
        if name.endswith("_q"):
            weights[name[:-2]] = jnp.array(values.astype(numpy.float32) * found[name[:-2] + "_s"])
        elif name.startswith(("embeddings", "encoder", "token_type")):
            weights[name] = jnp.array(values)
    return weights


WEIGHTS = read_model()
TOKENIZER = Tokenizer.from_file(f"{MODEL}/tokenizer-256-nopad.json")
TOKENIZER.enable_truncation(TOKENS)
TOKENIZER.enable_padding(length=TOKENS)


def normalise(x, name):
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) / jnp.sqrt(variance + 1e-12) * WEIGHTS[f"{name}.weight"] + WEIGHTS[f"{name}.bias"]


def linear(x, name, changes):
    y = x @ WEIGHTS[f"{name}.weight_t"] + WEIGHTS[f"{name}.bias"]
    return y + (x @ changes[name][0]) @ changes[name][1] if name in changes else y


def layers(x, mask, changes, numbers):
    hidden_from_padding = (1 - mask[:, None, None, :]) * -1e9
    for number in numbers:
        name = f"encoder.layer.{number}."

        def heads(part):
            y = linear(x, f"{name}attention.self.{part}", changes)
            return y.reshape(*y.shape[:2], HEADS, -1).transpose(0, 2, 1, 3)

        query, key, value = heads("query"), heads("key"), heads("value")
        scores = query @ key.transpose(0, 1, 3, 2) / numpy.sqrt(query.shape[-1]) + hidden_from_padding
        context = (jax.nn.softmax(scores, -1) @ value).transpose(0, 2, 1, 3).reshape(x.shape)
        x = normalise(x + linear(context, f"{name}attention.output.dense", changes), f"{name}attention.output.LayerNorm")
        inner = jax.nn.gelu(linear(x, f"{name}intermediate.dense", changes), approximate=False)
        x = normalise(x + linear(inner, f"{name}output.dense", changes), f"{name}output.LayerNorm")
    return x


@jax.jit
def lower_layers(ids, mask):
    x = WEIGHTS["word_embeddings"][ids] + WEIGHTS["position_embeddings"][:TOKENS][None]
    x = normalise(x + WEIGHTS["token_type_embeddings"][0], "embeddings.LayerNorm")
    return layers(x, mask, {}, range(UNCHANGED))


@jax.jit
def upper_layers(trained, x, mask, key=None):
    x = layers(x, mask, trained["changes"], range(UNCHANGED, LAYERS))
    mean = (x * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)
    if key is not None:
        mean = mean * jax.random.bernoulli(key, 1 - DROPOUT, mean.shape) / (1 - DROPOUT)
    return mean @ trained["head"] + trained["bias"]


def in_parts(function, *arrays):
    """Runs a compiled function over parts of one size."""
    out = []
    for start in range(0, len(arrays[0]), AT_ONCE):
        parts = [array[start:start + AT_ONCE] for array in arrays]
        count = len(parts[0])
        parts = [numpy.concatenate([part, numpy.repeat(part[:1], AT_ONCE - count, 0)]) for part in parts]
        out.append(numpy.array(function(*parts))[:count])
    return numpy.concatenate(out)


def encode(texts):
    """What the layers that do not change make of each text, and which tokens are no padding."""
    encodings = TOKENIZER.encode_batch(texts)
    ids = numpy.array([one.ids for one in encodings])
    mask = numpy.array([one.attention_mask for one in encodings], numpy.float32)
    return in_parts(lower_layers, ids, mask), mask


def fit(x, mask, merged, importance, seed=0):
    steps = EPOCHS * (len(merged) // BATCH)
    key = jax.random.PRNGKey(seed)
    changes = {}
    for number in range(UNCHANGED, LAYERS):
        for part in CHANGED:
            name = f"encoder.layer.{number}.{part}"
            inputs, outputs = WEIGHTS[f"{name}.weight_t"].shape
            key, of_change = jax.random.split(key)
            down = jax.random.normal(of_change, (inputs, RANK)) * numpy.sqrt(2 / inputs)
            changes[name] = (down, jnp.zeros((RANK, outputs)))
    share = float(merged.mean())
    trained = {
        "changes": changes,
        "head": jnp.zeros(x.shape[-1]),
        "bias": jnp.array(numpy.log(share / (1 - share)), jnp.float32),
    }
    rate = optax.warmup_cosine_decay_schedule(0, RATE, max(1, steps // 10), steps, 0)
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(rate, weight_decay=0.01))
    state = optimizer.init(trained)

    @jax.jit
    def step(trained, state, x, mask, merged, importance, key):
        def loss(trained):
            guess = upper_layers(trained, x, mask, key)
            return (optax.sigmoid_binary_cross_entropy(guess, merged) * importance).mean()

        value, gradient = jax.value_and_grad(loss)(trained)
        updates, state = optimizer.update(gradient, state, trained)
        return optax.apply_updates(trained, updates), state, value

    shuffled = numpy.random.default_rng(seed)
    for epoch in range(EPOCHS):
        order, losses = shuffled.permutation(len(merged)), []
        for start in range(0, len(order) - BATCH + 1, BATCH):
            rows = order[start:start + BATCH]
            key, of_step = jax.random.split(key)
            trained, state, value = step(trained, state, x[rows], mask[rows], merged[rows], importance[rows], of_step)
            losses.append(float(value))
        print(f"  epoch {epoch + 1} of {EPOCHS}: loss {numpy.mean(losses):.3f}", flush=True)
    return trained


def predict(trained, x, mask):
    """The log-odds of each text."""
    return in_parts(lambda *parts: upper_layers(trained, *parts), x, mask)


def rounded(array):
    """The bits of bfloat16, rounded to the nearest."""
    bits = numpy.asarray(array, numpy.float32).reshape(-1).view(numpy.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")


def save(trained, path):
    arrays = [
        matrix
        for number in range(UNCHANGED, LAYERS)
        for part in CHANGED
        for matrix in trained["changes"][f"encoder.layer.{number}.{part}"]
    ]
    with open(path, "wb") as out:
        for array in [*arrays, trained["head"], trained["bias"]]:
            out.write(rounded(array).tobytes())
