"""The learned re-ranker in NumPy, written from the formulas alone.

`python3 reference.py > reference.json` makes inputs, and what scores, gradients and one run of each learner must be for
them; `src/feedback/learner.rs` compares. Numbers of the inputs are rounded to what a 32-bit float holds.
"""

import json

import numpy as np

DIMENSIONS, CANDIDATES, SHOWN, EXAMPLES = 6, 8, 4, 10


def softmax(values, temperature):
    powers = np.exp((values - values.max()) / temperature)
    return powers / powers.sum()


def scores(weights, example):
    """base + q'ᵀ m' − qᵀ m"""
    of_query, of_memory = weights
    query, memories = example["query"], example["memories"]
    adapted = query + of_query @ query
    return example["base_scores"] + (memories + memories @ of_memory.T) @ adapted - memories @ query


def reinforce(example, score, temperature=0.5, baseline=0.5):
    """Of Σ (reward − b) log pᵢ over what was shown: row i of the softmax's Jacobian is (eᵢ − p) / τ."""
    p = softmax(score, temperature)
    gradient = np.zeros(len(score))
    for candidate, used in zip(example["shown"], example["used"]):
        one = np.zeros(len(score))
        one[candidate] = 1
        gradient += ((1 if used else -1) - baseline) * (one - p) / temperature
    return gradient


def listwise(example, score, temperature=0.15):
    shown, used = example["shown"], np.array(example["used"], float)
    gradient = np.zeros(len(score))
    gradient[shown] = (used / used.sum() - softmax(score[shown], temperature)) / temperature
    return gradient


def gradients(learner, weights, example):
    """The sum over the candidates of ∂objective/∂score times ∂score/∂W, one by one."""
    of_query, of_memory = weights
    query = example["query"]
    adapted = query + of_query @ query
    of_scores = learner(example, scores(weights, example))
    found = [np.zeros_like(of_query), np.zeros_like(of_memory)]
    for factor, memory in zip(of_scores, example["memories"]):
        found[0] += factor * np.outer(memory + of_memory @ memory, query)
        found[1] += factor * np.outer(adapted, memory)
    return found


def run(learner, weights, examples, rate, passes, norm_max):
    weights = [matrix.copy() for matrix in weights]
    for _ in range(passes):
        for example in examples:
            for matrix, gradient in zip(weights, gradients(learner, weights, example)):
                step = rate * gradient
                matrix += step * min(1, norm_max / np.linalg.norm(step))
                matrix *= min(1, norm_max / np.linalg.norm(matrix))
    return weights


def single(values):
    return np.asarray(values, np.float32).astype(float)


def unit(values):
    return single(values / np.linalg.norm(values, axis=-1, keepdims=True))


def plain(value):
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    return value.tolist() if isinstance(value, np.ndarray) else value


def main():
    random = np.random.default_rng(20)
    weights = [single(random.uniform(-0.1, 0.1, (DIMENSIONS, DIMENSIONS))) for _ in range(2)]
    examples = []
    for _ in range(EXAMPLES):
        query, memories = unit(random.normal(size=DIMENSIONS)), unit(random.normal(size=(CANDIDATES, DIMENSIONS)))
        base = memories @ query + random.uniform(-0.1, 0.1, CANDIDATES)
        shown = np.argsort(-base, kind="stable")[:SHOWN]
        used = np.isin(np.arange(SHOWN), random.permutation(SHOWN)[: random.integers(1, SHOWN)])
        examples.append(
            {"query": query, "memories": memories, "base_scores": base, "shown": shown, "used": used}
        )
    result = {
        "weights": [matrix.ravel() for matrix in weights],
        "examples": examples,
        "scores": [scores(weights, example) for example in examples],
    }
    for learner, rate, passes, norm_max in [(reinforce, 0.02, 5, 0.5), (listwise, 0.05, 6, 0.8)]:
        learned = run(learner, weights, examples, rate, passes, norm_max)
        result[learner.__name__] = {
            "gradients": [
                [matrix.ravel() for matrix in gradients(learner, weights, example)] for example in examples
            ],
            "rate": rate,
            "passes": passes,
            "norm_max": norm_max,
            "learned": [matrix.ravel() for matrix in learned],
        }
    print(json.dumps(plain(result)))


if __name__ == "__main__":
    main()
