#!/usr/bin/env python3
"""Trains the scorer of the offline extraction, and measures what it proposes, on verdicts about real sessions.

    evaluate.py sample CANDIDATES SESSIONS OUT [--per-session N] [--proposed]
    evaluate.py keep REPOSITORY READER VERDICTS...
    evaluate.py train CANDIDATES... [--stories CANDIDATES FOLDER] [--threshold SCORE]
    evaluate.py unseen CANDIDATES...
    evaluate.py score PROPOSALS...

CANDIDATES and PROPOSALS are what `stress extraction candidates` and `propose` print. `sample` writes the best
candidates of each session with the words around them, for a reader who knows nothing else; the reader answers with
lines of JSON: item, verdict (`asis`, `edit` or `junk`) and `wrong`. `keep` adds them to verdicts.jsonl, where an item
is known by a hash only. `train` fits the weights of the cues and fine-tunes the model, by the verdicts about the
repositories that are trained on; it needs numpy, scikit-learn and what fine_tune.py needs, and takes a quarter of an
hour on two cores. `unseen` says how well the scorer orders what it was not trained on; `score` prints what the
verdicts say about proposals, and how many were made of sessions that hold nothing: worth_keeping.jsonl has how many
lessons each of two readers would keep of a session.
"""

import argparse
import collections
import hashlib
import json
import os
import random

HERE = os.path.dirname(os.path.abspath(__file__))
VERDICTS = os.path.join(HERE, "verdicts.jsonl")
WORTH_KEEPING = os.path.join(HERE, "worth_keeping.jsonl")
WEIGHTS = os.path.join(HERE, "../../src/extract/heuristic/weights.json")
CHANGES = os.path.join(HERE, "../../src/extract/heuristic/lesson.bf16")
# Features that the cues' weights are trained without.
NO_CUES = {"bias", "read by the model"}
# Verdicts about other repositories are for measuring only.
TRAINED_ON = ["entireio/cli", "specstoryai/getspecstory"]
# Readers whose verdicts are for measuring only, although the repository is trained on.
UNSEEN = "unseen"
# The strength of the regularisation; chosen by cross-validation over sessions.
C = 0.01
# How much more a candidate counts that can be merged as it is, and one of a made-up session.
WEIGHT_AS_IS = 1.5
WEIGHT_STORY = 4.0


def lines(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def key(session, candidate):
    """The hash under which a verdict is kept: of the session, the line of the transcript and the title."""
    title = " ".join(candidate["title"].lower().split())
    line = candidate["evidence"][0]["line"]
    return hashlib.sha256(f"{session}\n{line}\n{title}".encode()).hexdigest()[:16]


def verdicts(unseen=None):
    """The verdict about each item; where readers differ, the stricter one."""
    order = ["junk", "edit", "asis"]
    found = {}
    for line in lines(VERDICTS):
        if unseen is not None and line["reader"].startswith(UNSEEN) != unseen:
            continue
        known = found.get(line["item"])
        if known is None or order.index(line["verdict"]) < order.index(known["verdict"]):
            found[line["item"]] = line
    return found


def unit(candidate):
    return (
        f"TITLE: {candidate['title']}\nTYPE: {candidate['type']}  DOMAIN: {candidate['domain']}\n"
        f"DESCRIPTION: {candidate['description']}\nBODY:\n{candidate['body']}"
    )


def cut(text, length):
    text = text.strip()
    return text if len(text) <= length else f"{text[:length * 2 // 3]} […] {text[-length // 3:]}"


def events(path):
    for text in open(path, errors="replace", encoding="utf-8"):
        try:
            line = json.loads(text)
        except ValueError:
            continue
        if not isinstance(line, dict) or line.get("type") not in ("user", "assistant"):
            continue
        content = line.get("message", {}).get("content")
        for block in [{"type": "text", "text": content}] if isinstance(content, str) else content or []:
            kind = block.get("type")
            if kind == "text":
                yield line.get("uuid"), f"{line['type'].upper()}: {cut(block['text'], 700)}"
            elif kind == "tool_use":
                yield line.get("uuid"), f"CALL {block['name']}: {cut(json.dumps(block.get('input')), 220)}"
            elif kind == "tool_result":
                result = block.get("content")
                if isinstance(result, list):
                    result = "\n".join(part.get("text", "") for part in result)
                yield line.get("uuid"), f"RESULT: {cut(str(result), 260)}"


def around(path, line):
    session = list(events(path))
    at = next((at for at, event in enumerate(session) if event[0] == line), 0)
    first = next((text for _, text in session if text.startswith("USER")), "")
    near = range(max(0, at - 6), min(len(session), at + 9))
    return f"SESSION BEGAN WITH: {cut(first, 400)}\n...\n" + "\n".join(
        (">>> " if number == at else "") + session[number][1] for number in near
    )


def sample(arguments):
    by_session = collections.defaultdict(list)
    for line in lines(arguments.candidates):
        found = [(1.0, one) for one in line["candidates"]] if arguments.proposed else [(line["score"], line["candidate"])]
        by_session[line["session"]] += found
    items = []
    for session, found in by_session.items():
        found.sort(key=lambda pair: -pair[0])
        items += [(session, candidate) for _, candidate in found[: arguments.per_session]]
    random.Random(16).shuffle(items)
    with open(arguments.out, "w", encoding="utf-8") as out:
        for session, candidate in items:
            path = os.path.join(arguments.sessions, f"{session}.jsonl")
            line = candidate["evidence"][0]["line"]
            out.write(
                f"\n\n######## {key(session, candidate)}\n{unit(candidate)}\n\n"
                f"-------- the session around it (>>> marks where it was said)\n{around(path, line)}\n"
            )
    print(f"{len(items)} items of {len(by_session)} sessions")


def keep(arguments):
    with open(VERDICTS, "a", encoding="utf-8") as out:
        for path in arguments.verdicts:
            for line in lines(path):
                kept = {"item": line["item"], "repository": arguments.repository, "reader": arguments.reader,
                        "verdict": line["verdict"], "wrong": bool(line.get("wrong"))}
                out.write(json.dumps(kept) + "\n")


def stories(path, folder):
    """The candidates of the made-up sessions of the tests, which say what must be found."""
    for line in lines(path):
        with open(os.path.join(folder, line["session"] + ".expect.json"), encoding="utf-8") as file:
            expected = json.load(file)["must"]
        candidate = line["candidate"]
        text = f"{candidate['title']}\n{candidate['body']}".lower()
        fits = any(
            candidate["type"] in ([fact["type"]] if isinstance(fact["type"], str) else fact["type"])
            and all(word.lower() in text for word in fact["says"])
            for fact in expected
        )
        yield line["session"], line["text"], line["features"], "asis" if fits else "junk"


def train(arguments):
    """Fits the cues, and fine-tunes the model; how much each counts is set by what they say about a repository left out."""
    import fine_tune
    import numpy
    from sklearn.linear_model import LogisticRegression

    measured = verdicts(unseen=True)
    known = {
        k: v for k, v in verdicts(unseen=False).items() if v["repository"] in TRAINED_ON and k not in measured
    }
    judged, repositories, seen = [], [], set()
    for path in arguments.candidates:
        for line in lines(path):
            of_line = key(line["session"], line["candidate"])
            if of_line in known and of_line not in seen:
                seen.add(of_line)
                judged.append((line["session"], line["text"], line["features"], known[of_line]["verdict"]))
                repositories.append(known[of_line]["repository"])
    real = len(judged)
    if arguments.stories:
        judged += stories(*arguments.stories)
    names = sorted({name for _, _, features, _ in judged for name in features} - NO_CUES)
    values = numpy.array([[features.get(name, 0.0) for name in names] for _, _, features, _ in judged])
    merged = numpy.array([verdict != "junk" for *_, verdict in judged], dtype=numpy.float32)
    as_is = numpy.array([verdict == "asis" for *_, verdict in judged])
    importance = numpy.where(as_is, WEIGHT_AS_IS, 1.0).astype(numpy.float32)
    importance[real:] = WEIGHT_STORY
    spread = values.std(0) + 1e-6
    scaled = values / spread
    read = fine_tune.encode([text for _, text, _, _ in judged])

    def fit(rows):
        """The cues' and the model's log-odds of all rows, trained on some, and both models."""
        model = LogisticRegression(C=C, max_iter=5000).fit(scaled[rows], merged[rows], sample_weight=importance[rows])
        trained = fine_tune.fit(*(part[rows] for part in read), merged[rows], importance[rows])
        return model.decision_function(scaled), fine_tune.predict(trained, *read), model, trained

    def report(name, guess, rows):
        order = sorted(rows, key=lambda row: -guess[row])
        print(f"{name}: {len(rows)} judged candidates, {merged[rows].sum():.0f} mergeable, {as_is[rows].sum()} as they are")
        for count in (20, 40, 60, 80, 100, 150, 200):
            best = order[:count]
            print(f"  best {count}: mergeable {merged[best].mean():.2f}, as they are {as_is[best].mean():.2f}, score {guess[best[-1]]:.3f}")

    cues, model = numpy.zeros(len(judged)), numpy.zeros(len(judged))
    for repository in sorted(set(repositories)):
        held_out = [row for row in range(real) if repositories[row] == repository]
        learned = [row for row in range(len(judged)) if row not in set(held_out)]
        of_cues, of_model, _, _ = fit(learned)
        cues[held_out], model[held_out] = of_cues[held_out], of_model[held_out]
        report(f"{repository}, trained on the others, cues alone", of_cues, held_out)
        report(f"{repository}, trained on the others, model alone", of_model, held_out)
    both = numpy.stack([cues, model], 1)[:real]
    blend = LogisticRegression(C=1e6).fit(both, merged[:real], sample_weight=importance[:real])
    guess = blend.predict_proba(both)[:, 1]
    for repository in sorted(set(repositories)):
        held_out = [row for row in range(real) if repositories[row] == repository]
        report(f"{repository}, trained on the others", guess, held_out)
    _, _, of_cues, trained = fit(numpy.arange(len(judged)))
    share_of_cues, share_of_model = blend.coef_[0]
    print(f"blend: {share_of_cues:.3f} of the cues, {share_of_model:.3f} of the model, {blend.intercept_[0]:.3f}")
    weights = {
        name: round(float(share_of_cues * weight / scale), 4)
        for name, weight, scale in zip(names, of_cues.coef_[0], spread)
    }
    weights["bias"] = round(float(share_of_cues * of_cues.intercept_[0] + blend.intercept_[0]), 4)
    weights["read by the model"] = round(float(share_of_model), 4)
    fine_tune.save(trained, CHANGES)
    note = (
        f"Cues and the fine-tuned model over {real} candidates that readers judged, of "
        f"{len({session for session, *_ in judged[:real]})} sessions of {', '.join(TRAINED_ON)}, and {len(judged) - real} of "
        "made-up sessions; blended by what they say about the repository left out; made by stress/extraction/evaluate.py train"
    )
    with open(WEIGHTS, "w", encoding="utf-8") as out:
        thresholds = {"threshold": arguments.threshold, "threshold_of_causes": arguments.threshold_of_causes}
        json.dump({"note": note, **thresholds, "weights": weights}, out, indent=1, sort_keys=True)
        out.write("\n")


def unseen(arguments):
    known = verdicts(unseen=True)
    with open(WEIGHTS, encoding="utf-8") as file:
        threshold = json.load(file)["threshold"]
    judged = {}
    for path in arguments.candidates:
        for line in lines(path):
            if verdict := known.get(key(line["session"], line["candidate"])):
                judged[verdict["item"]] = (line["score"], verdict["verdict"], verdict["repository"])
    for repository in [None, *sorted({one[2] for one in judged.values()})]:
        found = sorted((one for one in judged.values() if repository in (None, one[2])), key=lambda one: -one[0])
        good = [one for one in found if one[1] != "junk"]
        bad = [one for one in found if one[1] == "junk"]
        if not good or not bad:
            continue
        before = sum((a[0] > b[0]) + (a[0] == b[0]) / 2 for a in good for b in bad) / (len(good) * len(bad))
        print(f"{repository or 'all'}: {len(found)} judged, {len(good) / len(found):.0%} mergeable; "
              f"a mergeable one is before junk in {before:.0%}")
        above = [one for one in found if one[0] >= threshold]
        for name, best in [(f"at least {threshold}", above)] + [(f"best {count}", found[:count]) for count in (20, 50, 100)]:
            mergeable = sum(verdict != "junk" for _, verdict, _ in best)
            print(f"  {name}: {mergeable} of {len(best)} mergeable")


def score(arguments):
    known = verdicts()
    kept = collections.defaultdict(list)
    for line in lines(WORTH_KEEPING):
        kept[line["session"]].append(line["worth_keeping"])
    empty = collections.defaultdict(list)
    counts, sessions, unknown, wrong = collections.Counter(), 0, 0, 0
    for path in arguments.proposals:
        for line in lines(path):
            sessions += 1
            readers = kept[hashlib.sha256(line["session"].encode()).hexdigest()[:16]]
            empty[readers.count(0)].append(len(line["candidates"]))
            for candidate in line["candidates"]:
                verdict = known.get(key(line["session"], candidate))
                unknown += verdict is None
                counts[verdict and verdict["verdict"]] += 1
                wrong += bool(verdict and verdict["wrong"])
    judged = sum(counts.values()) - unknown
    print(f"{sessions} sessions, {judged + unknown} units proposed, {unknown} not judged")
    for verdict, name in (("asis", "as they are"), ("edit", "after a small edit"), ("junk", "junk")):
        print(f"  {name}: {counts[verdict]} ({counts[verdict] / max(judged, 1):.0%})")
    print(f"  with a wrong cause, command or remedy: {wrong}")
    for readers, name in ((2, "both readers"), (1, "one of them")):
        print(f"sessions that hold nothing by {name}: {len(empty[readers])}, units of these: {sum(empty[readers])}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    sampling = commands.add_parser("sample")
    for name in ("candidates", "sessions", "out"):
        sampling.add_argument(name)
    sampling.add_argument("--per-session", type=int, default=2)
    sampling.add_argument("--proposed", action="store_true")
    keeping = commands.add_parser("keep")
    for name in ("repository", "reader"):
        keeping.add_argument(name)
    keeping.add_argument("verdicts", nargs="+")
    training = commands.add_parser("train")
    training.add_argument("candidates", nargs="+")
    training.add_argument("--stories", nargs=2, metavar=("CANDIDATES", "FOLDER"))
    training.add_argument("--threshold", type=float, default=0.64)
    training.add_argument("--threshold-of-causes", type=float, default=0.5)
    measuring = commands.add_parser("unseen")
    measuring.add_argument("candidates", nargs="+")
    scoring = commands.add_parser("score")
    scoring.add_argument("proposals", nargs="+")
    arguments = parser.parse_args()
    {"sample": sample, "keep": keep, "train": train, "unseen": unseen, "score": score}[arguments.command](arguments)


main()
