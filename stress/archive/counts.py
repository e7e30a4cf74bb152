#!/usr/bin/env python3
"""Counts what is in Claude Code transcripts, independently of nugget, for `stress archive --counts`.

    counts.py FOLDER

Reads every `*.jsonl` of a folder, such as `stress/extraction/sessions.py` makes, and prints one line of JSON: sessions,
messages by role, calls of tools, changed files, and tokens. Copies of a line in several files count once.
"""

import json
import os
import sys

EDITORS = {"Edit", "MultiEdit", "NotebookEdit", "Write"}
TOKENS = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


def lines_of(path):
    with open(path, "rb") as file:
        for raw in file:
            # A line without its end is still being written.
            if not raw.endswith(b"\n"):
                continue
            try:
                line = json.loads(raw)
            except ValueError:
                continue
            if isinstance(line, dict):
                yield line


def blocks(line):
    content = (line.get("message") or {}).get("content")
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = sys.argv[1]
    seen, sessions, tools, files = set(), 0, 0, set()
    roles = {"user": 0, "assistant": 0, "system": 0}
    requests = {}
    # In the order in which an archive takes them: a copy belongs to the older file.
    paths = [os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".jsonl")]
    for path in sorted(paths, key=lambda path: (os.stat(path).st_mtime_ns // 1_000_000, path)):
        lines = list(lines_of(path))
        if not any(line.get("type") in ("user", "assistant") for line in lines):
            continue
        sessions += 1
        cwd = next((line["cwd"] for line in lines if line.get("cwd")), "")

        def changed(name):
            files.add(name if name.startswith("/") or ":\\" in name or not cwd else cwd.rstrip("/") + "/" + name)

        for line in lines:
            kind = line.get("type")
            if kind in ("file-history-snapshot", "file-history-delta"):
                for name in ((line.get("snapshot") or {}).get("trackedFileBackups") or {}):
                    changed(name)
                continue
            if kind == "attachment" and (line.get("attachment") or {}).get("type") == "queued_command":
                kind = "user"
            if kind == "system" and not (isinstance(line.get("content"), str) and line["content"].strip()):
                continue
            if kind not in roles:
                continue
            identity = line.get("uuid") or json.dumps(line, sort_keys=True)
            if identity in seen:
                continue
            seen.add(identity)
            roles[kind] += 1
            if kind != "assistant":
                continue
            message = line.get("message") or {}
            for block in blocks(line):
                if block.get("type") in ("tool_use", "server_tool_use", "mcp_tool_use"):
                    tools += 1
                    name = (block.get("input") or {}).get("file_path") or (block.get("input") or {}).get("notebook_path")
                    if block.get("name") in EDITORS and isinstance(name, str):
                        changed(name)
            key = message.get("id") or line.get("requestId")
            if key and message.get("model") not in (None, "", "<synthetic>") and isinstance(message.get("usage"), dict):
                tokens = requests.setdefault(key, dict.fromkeys(TOKENS, 0))
                for name in TOKENS:
                    tokens[name] = max(tokens[name], message["usage"].get(name) or 0)
    totals = {name: sum(tokens[name] for tokens in requests.values()) for name in TOKENS}
    result = {"sessions": sessions, "messages": roles, "tool_uses": tools, "files": len(files), "requests": len(requests)}
    print(json.dumps({**result, **totals}))


main()
