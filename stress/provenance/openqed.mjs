// Runs openqed's own relevance and budget functions on cases from standard input.
//
//     node openqed.mjs CLONE NOW_MS < cases.json > results.json

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { stripTypeScriptTypes } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const [clone, now] = process.argv.slice(2);
const folder = mkdtempSync(join(tmpdir(), 'openqed-'));
const load = async (path, name, change = (text) => text) => {
  const text = stripTypeScriptTypes(readFileSync(join(clone, 'src', path), 'utf8'));
  writeFileSync(join(folder, name), change(text));
  return import(pathToFileURL(join(folder, name)));
};

try {
  await load('utils/tokens.ts', 'tokens.mjs');
  const { scoreNugget, rankNuggets } = await load('context/relevance.ts', 'relevance.mjs');
  const budget = (text) => text.replace('../utils/tokens.js', './tokens.mjs');
  const { assembleResponse } = await load('context/budget.ts', 'budget.mjs', budget);
  Date.now = () => Number(now);
  const cases = JSON.parse(readFileSync(0, 'utf8'));
  const results = cases.map(({ path, budget, depth, items }) => {
    const query = { path: path ?? undefined, tokenBudget: budget, depth, workspaceId: 'w' };
    const nuggets = items.map((item, id) => ({
      ...item, id, sessionId: 's', detail: item.detail ?? undefined, scopePath: item.scopePath ?? undefined,
    }));
    const stale = new Map(nuggets.map(({ id, stale }) => [id, { nuggetId: id, isStale: stale }]));
    const ranks = new Map(nuggets.filter(({ rank }) => rank !== null).map(({ id, rank }) => [id, rank]));
    const scores = nuggets.map((nugget) => scoreNugget(nugget, query, stale.get(nugget.id), ranks.get(nugget.id)).score);
    const response = assembleResponse(rankNuggets(nuggets, query, stale, ranks), query);
    return {
      scores,
      items: response.nuggets.map(({ summary, detail }) => ({ summary, detail: detail !== undefined })),
      used: response.budget.used,
      truncated: response.budget.truncated,
    };
  });
  process.stdout.write(JSON.stringify(results));
} finally {
  rmSync(folder, { recursive: true });
}
