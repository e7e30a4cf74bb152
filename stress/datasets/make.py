#!/usr/bin/env python3
"""Makes the six retrieval sets from clones of their public sources.

Python 3.9 or later, standard library only. README.md beside this file says where to get the clones.

Each set is a folder with three files, in the form of BEIR (https://github.com/beir-cellar/beir):

  corpus.jsonl   {"id", "text"} and, where the source has them, "title", "scope", "doc", "position"
  queries.jsonl  {"id", "text"} and, for the dialogues, "scope"
  qrels.tsv      query id, corpus id, relevance (always 1), separated by tabs

The files `*.ids` beside this script name the items that belong to a set; all other items of the sources
stay unused. `SHA256SUMS` holds the digest of every file: a file with another digest is an error.
"""

import argparse
import csv
import hashlib
import io
import json
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Each source is read at one commit, whatever is checked out.
COMMITS = {
    "cookbook": "4b36a1e",
    "coclr": "14ebcac",
    "locomo": "3eb6f2c",
    "chunking": "d451fc4",
}
# Passages are cut at the last of the first separator that occurs in the second half of the window.
PASSAGE_MAX = 900
PASSAGE_MIN = PASSAGE_MAX // 2
PASSAGE_SEPARATORS = ("\n\n", "\n", ". ", " ")
# A passage is relevant if it holds this share of a reference span.
REFERENCE_SHARE = 0.4
PASSAGE_CORPORA = ("chatlogs", "finance", "pubmed", "state_of_the_union", "wikitexts")
TURNS_OF_A_CHUNK = 5
# LoCoMo's adversarial questions have no answer in the conversation.
ADVERSARIAL = 5


class Source:
    """A clone, with or without a work tree."""

    def __init__(self, name, folder):
        self.folder, self.commit = folder, COMMITS[name]

    def read(self, path):
        command = ["git", "-C", str(self.folder), "show", f"{self.commit}:{path}"]
        shown = subprocess.run(command, capture_output=True)
        if shown.returncode != 0:
            raise SystemExit(f"error: {self.folder}: {shown.stderr.decode().strip()}")
        return shown.stdout.decode("utf-8")

    def json(self, path):
        return json.loads(self.read(path))


def ids(name):
    """The ids that belong to a set, one a line."""
    return (HERE / f"{name}.ids").read_text().split()


def docs_qa(cookbook):
    folder = "skills/retrieval_augmented_generation"
    documents = cookbook.json(f"{folder}/data/anthropic_docs.json")
    corpus = [{"id": d["chunk_link"], "title": d["chunk_heading"], "text": d["text"]} for d in documents]
    asked = {q["id"]: q for q in cookbook.json(f"{folder}/evaluation/docs_evaluation_dataset.json")}
    chosen = [q for key, q in asked.items() if key in set(ids("docs-qa"))]
    queries = [{"id": q["id"], "text": q["question"]} for q in chosen]
    return corpus, queries, [(q["id"], chunk) for q in chosen for chunk in q["correct_chunks"]]


def code_qa(cookbook):
    folder = "skills/contextual-embeddings/data"
    corpus, by_golden = [], {}
    for document in cookbook.json(f"{folder}/codebase_chunks.json"):
        for chunk in document["chunks"]:
            position = chunk["original_index"]
            by_golden[document["original_uuid"], position] = chunk["chunk_id"]
            item = {"id": chunk["chunk_id"], "text": chunk["content"]}
            corpus.append(item | {"doc": document["doc_id"], "position": position})
    asked = [json.loads(line) for line in cookbook.read(f"{folder}/evaluation_set.jsonl").splitlines()]
    queries, qrels = [], []
    for name in ids("code-qa"):
        question = asked[int(name[1:])]
        queries.append({"id": name, "text": question["query"]})
        qrels += [(name, by_golden[document, position]) for document, position in question["golden_chunk_uuids"]]
    return corpus, queries, qrels


def code_search(coclr):
    numbers = coclr.json("data/search/code_idx_map.txt")
    # In the measured copy of five functions, the package index has a neutral host name.
    neutral = {code: re.sub(r"\bpypi(\.python)?\.org\b", "packages.example", code) for code in numbers}
    corpus = [{"id": str(number), "text": neutral[code]} for code, number in numbers.items()]
    asked = coclr.json("data/search/cosqa-retrieval-dev-500.json")
    queries = [{"id": q["idx"], "text": q["doc"]} for q in asked]
    return corpus, queries, [(q["idx"], str(q["retrieval_idx"])) for q in asked]


def passages(chunking):
    folder = "chunking_evaluation/evaluation_framework/general_evaluation_data"
    corpus, spans = [], {}
    for name in PASSAGE_CORPORA:
        text = chunking.read(f"{folder}/corpora/{name}.md")
        spans[name] = list(cut(text))
        for position, (start, end) in enumerate(spans[name]):
            item = {"id": f"{name}/{position}", "text": text[start:end]}
            corpus.append(item | {"doc": name, "position": position})
    asked = list(csv.DictReader(io.StringIO(chunking.read(f"{folder}/questions_df.csv"))))
    queries, qrels = [], []
    for query in ids("passages"):
        row = asked[int(query[1:])]
        queries.append({"id": query, "text": row["question"]})
        name, references = row["corpus_id"], json.loads(row["references"])
        relevant = [
            f"{name}/{position}"
            for reference in references
            for position, (start, end) in enumerate(spans[name])
            if holds(start, end, reference)
        ]
        qrels += [(query, passage) for passage in dict.fromkeys(relevant)]
    return corpus, queries, qrels


def cut(text):
    """The passages of a text, as pairs of offsets."""
    start = 0
    while len(text) - start > PASSAGE_MAX:
        end = start + PASSAGE_MAX
        for separator in PASSAGE_SEPARATORS:
            found = text.rfind(separator, start + PASSAGE_MIN, start + PASSAGE_MAX)
            if found >= 0:
                end = found + len(separator)
                break
        yield start, end
        start = end
    yield start, len(text)


def holds(start, end, reference):
    first, last = reference["start_index"], reference["end_index"]
    return min(end, last) - max(start, first) >= REFERENCE_SHARE * (last - first)


def dialogues(locomo):
    """The turns of the chosen conversations by session, and their questions with the turns that answer them."""
    samples = {sample["sample_id"]: sample for sample in locomo.json("data/locomo10.json")}
    sessions, questions = [], []
    for scope in ids("dialogues"):
        conversation = samples[scope]["conversation"]
        numbers = sorted(int(name[8:]) for name in conversation if re.fullmatch(r"session_\d+", name))
        for number in numbers:
            date = conversation[f"session_{number}_date_time"].split(" on ")[1]
            sessions.append((scope, f"{scope}/session_{number}", date, conversation[f"session_{number}"]))
        turns = {turn["dia_id"] for name in numbers for turn in conversation[f"session_{name}"]}
        for number, question in enumerate(samples[scope]["qa"]):
            # At times one entry names several turns, a turn that does not exist, or none.
            named = re.findall(r"D\d+:\d+", " ".join(question["evidence"]))
            evidence = [f"{scope}/{turn}" for turn in named if turn in turns]
            if question["category"] != ADVERSARIAL and evidence:
                query = {"id": f"{scope}/q{number}", "text": question["question"], "scope": scope}
                questions.append((query, evidence))
    return sessions, questions


def said(turn):
    photo = turn.get("blip_caption")
    return turn["text"] + (f" [photo: {photo}]" if photo else "")


def dialogue_turns(locomo):
    sessions, questions = dialogues(locomo)
    corpus = [
        {"id": f"{scope}/{turn['dia_id']}", "text": f"{turn['speaker']} ({date}): {said(turn)}"}
        | {"scope": scope, "doc": session, "position": position}
        for scope, session, date, turns in sessions
        for position, turn in enumerate(turns)
    ]
    qrels = [(query["id"], turn) for query, evidence in questions for turn in evidence]
    return corpus, [query for query, _ in questions], qrels


def dialogue_chunks(locomo):
    sessions, questions = dialogues(locomo)
    corpus, chunk_of = [], {}
    for scope, session, date, turns in sessions:
        for position, first in enumerate(range(0, len(turns), TURNS_OF_A_CHUNK)):
            part = turns[first : first + TURNS_OF_A_CHUNK]
            name = f"{session}/c{position}"
            text = "\n".join([f"({date})"] + [f"{turn['speaker']}: {said(turn)}" for turn in part])
            corpus.append({"id": name, "text": text, "scope": scope, "doc": session, "position": position})
            chunk_of |= {f"{scope}/{turn['dia_id']}": name for turn in part}
    qrels = [
        (query["id"], chunk)
        for query, evidence in questions
        for chunk in dict.fromkeys(chunk_of[turn] for turn in evidence)
    ]
    return corpus, [query for query, _ in questions], qrels


SETS = {
    "docs-qa": ("cookbook", docs_qa),
    "code-qa": ("cookbook", code_qa),
    "code-search": ("coclr", code_search),
    "passages": ("chunking", passages),
    "dialogue-turns": ("locomo", dialogue_turns),
    "dialogue-chunks": ("locomo", dialogue_chunks),
}


def write(folder, corpus, queries, qrels):
    """Writes a set; the names of the files whose digest is another one."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = {
        "corpus.jsonl": [json.dumps(item, ensure_ascii=False) for item in corpus],
        "queries.jsonl": [json.dumps(item, ensure_ascii=False) for item in queries],
        "qrels.tsv": [f"{query}\t{item}\t1" for query, item in qrels],
    }
    expected = dict(reversed(line.split()) for line in (HERE / "SHA256SUMS").read_text().splitlines())
    wrong = []
    for name, content in lines.items():
        data = "".join(line + "\n" for line in content).encode("utf-8")
        (folder / name).write_bytes(data)
        if hashlib.sha256(data).hexdigest() != expected[f"{folder.name}/{name}"]:
            wrong.append(f"{folder.name}/{name}")
    return wrong


def main():
    parser = argparse.ArgumentParser(description="Makes the retrieval sets from clones of their sources.")
    parser.add_argument("--out", type=Path, required=True, help="the folder for the sets, one folder each")
    for name, commit in COMMITS.items():
        parser.add_argument(f"--{name}", type=Path, metavar="CLONE", help=f"the clone that holds {commit}")
    parser.add_argument("sets", nargs="*", metavar="SET", help=f"some of: {', '.join(SETS)} (default: all)")
    arguments = parser.parse_args()
    unknown = set(arguments.sets) - set(SETS)
    if unknown:
        parser.error(f"there is no set {', '.join(sorted(unknown))}")
    wrong, skipped = [], []
    for name, (source, make) in SETS.items():
        if arguments.sets and name not in arguments.sets:
            continue
        clone = getattr(arguments, source)
        if clone is None:
            print(f"{name:<16} skipped: no --{source}")
            skipped.append(name)
            continue
        corpus, queries, qrels = make(Source(source, clone))
        differs = write(arguments.out / name, corpus, queries, qrels)
        state = f"other digest: {', '.join(differs)}" if differs else "digests match"
        print(f"{name:<16} {len(corpus)} texts, {len(queries)} questions, {len(qrels)} judgements: {state}")
        wrong += differs
    if wrong:
        sys.exit(f"error: {len(wrong)} files are not those that the figures were measured on")
    if arguments.sets and skipped:
        sys.exit("error: a set that was asked for has no clone")


if __name__ == "__main__":
    main()
