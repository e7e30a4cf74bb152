// Reduces GitHub's OpenAPI description to what nugget requests and the local GitHub answers:
//
//   npm pack @octokit/openapi@23.0.2 && tar xzf octokit-openapi-23.0.2.tgz
//   node tests/support/github_openapi.mjs package/generated/api.github.com.json > tests/support/github_openapi.json
//
// The description is GitHub's (github/rest-api-description), the package Octokit's: MIT License,
// Copyright (c) 2020 Octokit contributors. `.ci/run` does the same and compares.
import { readFileSync } from "node:fs";

const user = { login: 1 };
const repository = {
  id: 1, name: 1, full_name: 1, owner: user, private: 1, html_url: 1, clone_url: 1, ssh_url: 1, fork: 1,
  default_branch: 1, archived: 1, delete_branch_on_merge: 1, permissions: { push: 1, pull: 1, admin: 1 },
  parent: { full_name: 1 },
};
const end = { label: 1, ref: 1, sha: 1, repo: { full_name: 1 } };
const label = { id: 1, name: 1, color: 1 };
const simple = {
  id: 1, number: 1, html_url: 1, state: 1, title: 1, body: 1, user, draft: 1, locked: 1, head: end, base: end,
  created_at: 1, closed_at: 1, merged_at: 1, labels: label,
};
const pull = { ...simple, merged: 1, merged_by: user };
const comment = { id: 1, html_url: 1, body: 1, user, created_at: 1 };
const error = { message: 1, url: 1, documentation_url: 1, status: 1, errors: 1 };

// The fields kept of each response; requests are kept complete.
const KEPT = {
  "get /user": user,
  "post /user/repos": repository,
  "post /orgs/{org}/repos": repository,
  "get /repos/{owner}/{repo}": repository,
  "get /repos/{owner}/{repo}/pulls": simple,
  "post /repos/{owner}/{repo}/pulls": pull,
  "get /repos/{owner}/{repo}/pulls/{pull_number}": pull,
  "patch /repos/{owner}/{repo}/pulls/{pull_number}": pull,
  "post /repos/{owner}/{repo}/pulls/{pull_number}/requested_reviewers": simple,
  "get /repos/{owner}/{repo}/issues/{issue_number}/comments": comment,
  "post /repos/{owner}/{repo}/issues/{issue_number}/comments": comment,
  "get /repos/{owner}/{repo}/labels": label,
  "post /repos/{owner}/{repo}/issues/{issue_number}/labels": label,
  "delete /repos/{owner}/{repo}/git/refs/{ref}": {},
};

const spec = JSON.parse(readFileSync(process.argv[2], "utf8"));

function resolved(node) {
  while (node?.$ref) node = node.$ref.slice(2).split("/").reduce((at, key) => at[key], spec);
  return node;
}

// `keep`: a tree of field names, 1 for a leaf; undefined keeps all.
function cut(node, keep) {
  node = resolved(node);
  if (!node) return {};
  const out = {};
  for (const key of ["type", "nullable", "enum", "format", "minItems", "maxLength"]) if (key in node) out[key] = node[key];
  for (const key of ["oneOf", "anyOf", "allOf"]) if (node[key]) out[key] = node[key].map((one) => cut(one, keep));
  if (node.items) out.items = cut(node.items, keep);
  if (node.properties && keep !== 1) {
    const names = Object.keys(node.properties).filter((name) => !keep || name in keep).sort();
    out.properties = Object.fromEntries(names.map((name) => [name, cut(node.properties[name], keep?.[name])]));
  }
  if (node.required) out.required = node.required.filter((name) => name in (out.properties ?? {})).sort();
  return out;
}

const operations = {};
for (const [name, keep] of Object.entries(KEPT)) {
  const [method, path] = name.split(" ");
  const found = spec.paths[path][method];
  const body = found.requestBody?.content["application/json"].schema;
  operations[name] = {
    query: Object.fromEntries(
      (found.parameters ?? []).map(resolved).filter((one) => one.in === "query").map((one) => [one.name, cut(one.schema)]),
    ),
    ...(body && { body: cut(body) }),
    answers: Object.fromEntries(
      Object.entries(found.responses).map(([status, answer]) => {
        const schema = resolved(answer).content?.["application/json"]?.schema;
        return [status, schema ? cut(schema, Number(status) < 300 ? keep : error) : null];
      }),
    ),
  };
}
const note =
  "Cut by github_openapi.mjs from npm @octokit/openapi 23.0.2, generated/api.github.com.json: GitHub's OpenAPI description, MIT License, Copyright (c) 2020 Octokit contributors";
// One operation per line.
const lines = Object.entries(operations).map(([name, one]) => `${JSON.stringify(name)}: ${JSON.stringify(one)}`);
process.stdout.write(`{"note": ${JSON.stringify(note)},\n"operations": {\n${lines.join(",\n")}\n}}\n`);
