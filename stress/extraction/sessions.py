#!/usr/bin/env python3
"""Cuts real sessions out of public repositories, as Claude Code transcripts, for `stress extraction`.

    sessions.py OUT GIT_DIR...

Two forms are read: the raw transcripts that the tool Entire commits to the branch `entire/checkpoints/v1` (copies
are cumulative, so the longest of each session is kept), and the markdown that SpecStory writes to
`.specstory/history`, of which only sessions of Claude Code are taken. Nothing of them belongs into this repository.
"""

import json
import os
import re
import subprocess
import sys
import uuid

BRANCH = "entire/checkpoints/v1"
AGENTS = ("Claude Code", "Agent", None)


def git(git_dir, *arguments, text=None):
    run = subprocess.run(["git", "--git-dir", git_dir, *arguments], capture_output=True, input=text)
    return run.stdout


def tree(git_dir, revision):
    """The path and object of each file whose content is there."""
    lines = git(git_dir, "ls-tree", "-r", "-z", revision).decode(errors="replace").split("\0")
    files = dict((path, meta.split()[2]) for meta, path in (line.split("\t", 1) for line in lines if line))
    check = git(git_dir, "cat-file", "--batch-check", text="\n".join(files.values()).encode()).decode()
    sizes = {words[0]: int(words[2]) for words in map(str.split, check.splitlines()) if words[1] == "blob"}
    return {path: (blob, sizes[blob]) for path, blob in files.items() if blob in sizes}


def entire_sessions(git_dir):
    files = tree(git_dir, BRANCH)
    longest = {}
    for path, (blob, size) in files.items():
        if not path.endswith("full.jsonl"):
            continue
        metadata = {}
        if beside := files.get(os.path.dirname(path) + "/metadata.json"):
            try:
                metadata = json.loads(git(git_dir, "cat-file", "blob", beside[0]))
            except ValueError:
                pass
        if metadata.get("agent") not in AGENTS:
            continue
        name = metadata.get("session_id") or os.path.dirname(path)
        if name not in longest or longest[name][1] < size:
            longest[name] = (blob, size)
    for name, (blob, _) in longest.items():
        yield name.replace("/", "_"), git(git_dir, "cat-file", "blob", blob)


TURN = re.compile(r"^_\*\*(User|Agent)(?: \(([^)]*)\))?(?: \(sidechain\))?\*\*_$", re.M)
TOOL = re.compile(r'<tool-use data-tool-type="([^"]*)" data-tool-name="([^"]*)"><details>(.*?)</details></tool-use>', re.S)
THINKING = re.compile(r"<think>.*?</think>", re.S)
SESSION = re.compile(r"<!-- Claude Code Session (\S+) ")


def specstory_sessions(git_dir):
    for path, (blob, _) in tree(git_dir, "HEAD").items():
        if "/.specstory/history/" not in "/" + path or not path.endswith(".md"):
            continue
        text = git(git_dir, "cat-file", "blob", blob).decode(errors="replace")
        if found := SESSION.search(text):
            yield found[1], "".join(specstory_lines(found[1], text)).encode()


def specstory_lines(session, text):
    turns = list(TURN.finditer(text))
    number = 0

    def line(kind, content, at, **more):
        nonlocal number
        number += 1
        of_line = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{session}/{number}"))
        time = at.strip().split(" ")[-2:] if at else []
        record = {"type": kind, "uuid": of_line, "sessionId": session, "cwd": "/work/project",
                  "message": {"role": kind, "content": content}, **more}
        if len(time) == 2:
            record["timestamp"] = "T".join(time)
        return json.dumps(record) + "\n"

    for at, turn in enumerate(turns):
        body = text[turn.end():turns[at + 1].start() if at + 1 < len(turns) else len(text)].strip()
        if turn[1] == "User":
            # What follows a command is its prompt, which no person typed.
            follows = at > 0 and turns[at - 1][1] == "User" and "<command-name>" in text[turns[at - 1].end():turn.start()]
            yield line("user", body, turn[2], isMeta=follows)
            continue
        start = 0
        for tool in TOOL.finditer(body):
            if said := THINKING.sub("", body[start:tool.start()]).strip():
                yield line("assistant", [{"type": "text", "text": said}], turn[2])
            start = tool.end()
            identity = f"toolu_{number}"
            inner = re.sub(r"^<summary>.*?</summary>", "", tool[3].strip(), flags=re.S).strip()
            head, _, output = inner.partition("```")
            argument = {"shell": "command", "read": "file_path", "write": "file_path"}.get(tool[1], "description")
            value = head.strip().strip("`").strip()
            call = {"type": "tool_use", "id": identity, "name": tool[2], "input": {argument: value}}
            yield line("assistant", [call], turn[2])
            output = output.partition("\n")[2].rsplit("```", 1)[0]
            result = {"type": "tool_result", "tool_use_id": identity, "content": output,
                      "is_error": output.startswith(("Error", "Exit code "))}
            yield line("user", [result], turn[2])
        if said := THINKING.sub("", body[start:]).strip():
            yield line("assistant", [{"type": "text", "text": said}], turn[2])


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    out, repositories = sys.argv[1], sys.argv[2:]
    for git_dir in repositories:
        name = os.path.basename(os.path.dirname(os.path.abspath(git_dir)) if git_dir.rstrip("/").endswith(("/repo", "/.git")) else git_dir.rstrip("/"))
        folder = os.path.join(out, name.removesuffix(".git"))
        os.makedirs(folder, exist_ok=True)
        has_branch = git(git_dir, "rev-parse", "--verify", "--quiet", BRANCH)
        count = 0
        for session, transcript in entire_sessions(git_dir) if has_branch else specstory_sessions(git_dir):
            with open(os.path.join(folder, session + ".jsonl"), "wb") as file:
                file.write(transcript)
            count += 1
        print(f"{folder}: {count} sessions")


main()
