// Runs the seed's program (NeoVertex1/nuggets) on invented data and writes what it answers as JSON.
//
//   node seed.mjs <what> <folder> <output file>
//
// `what` is `notes`, `resolve` or `capacity`. `folder` holds the program's modules as plain
// JavaScript that the reader has made: core.js with graph.js for `notes`, with memory.js for the
// others. Nothing of that program is kept here.
//
// `capacity` takes DIMENSIONS and FACTS (comma-separated) and CELL_SECONDS, the time for a cell's
// recalls, from the environment: a recall at 16,384 dimensions takes the program up to seconds.
// `notes` takes DIMENSION.
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { makeFactQuestions, makeFacts, makeNotes, makeQuestions, randomFrom } from "./data.mjs";

const SEED = 20260731;
const listed = (name, standard) => process.env[name]?.split(",").map(Number) ?? standard;
const DIMENSIONS = listed("DIMENSIONS", [1024, 2048, 4096, 8192, 16384]);
const FACT_COUNTS = listed("FACTS", [10, 50, 100, 200, 500, 1000, 2000]);
const RECALLS_A_CELL = 2000;
const CELL_SECONDS = Number(process.env.CELL_SECONDS ?? 60);

const [what, folder, output] = process.argv.slice(2);
const load = (name) => import(pathToFileURL(resolve(folder, name)).href);

/** Fills a graph with notes, links and mirrored facts, and notes how it treats doubles and removals. */
function fillGraph(graph, random, notes) {
  const made = notes.map((note) => graph.createNote(note.title, note.content, note.tags, note.meta));
  const at = () => made[Math.floor(random() * made.length)].id;
  for (let i = 0; i < made.length; i++) graph.addLink(at(), at(), `reason ${i % 7}`);

  const links = (id) => graph.getNote(id).links;
  const [first, second] = made.map((note) => note.id);
  const before = [links(first).length, links(second).length];
  graph.addLink(first, second, "seen together");
  graph.addLink(first, second, "Seen   TOGETHER");
  const doubled = [links(first).length - before[0], links(second).length - before[1]];
  const otherReason = graph.addLink(first, second, "another reason") && links(first).length - before[0];

  const fact = graph.upsertFactNote("user:editor", "prefers vim");
  graph.upsertFactNote("USER:editor", "prefers helix");
  const mirrored = graph.listNotes().filter((note) => note.kind === "fact");
  graph.addLink(first, fact.id, "about");
  const linked = links(first).some((link) => link.to === fact.id);
  graph.removeFactNote("user:Editor");
  return {
    made,
    rules: {
      links_added_by_doubled_addLink: doubled,
      links_after_another_reason: otherReason,
      link_to_itself: graph.addLink(first, first, "self"),
      fact_notes_after_two_upserts: mirrored.map((note) => [note.title, note.content]),
      linked_to_fact_before_removal: linked,
      dangling_after_removal: links(first).some((link) => link.to === fact.id),
    },
  };
}

function runSearches(graph, questions) {
  return questions.map((question) => {
    const started = performance.now();
    const found = graph.searchNotes(question.text, 1000);
    return {
      ...question,
      milliseconds: performance.now() - started,
      hits: found.map((hit) => [hit.note.id, hit.score, hit.vectorScore, hit.textScore]),
    };
  });
}

async function notes() {
  const { NuggetGraph } = await load("graph.js");
  const dimension = Number(process.env.DIMENSION ?? 16384);
  const directory = mkdtempSync(join(tmpdir(), "seed-notes-"));
  const random = randomFrom(SEED);
  const invented = makeNotes(random, 200);
  const graph = new NuggetGraph(directory, "project", dimension);
  const { made, rules } = fillGraph(graph, random, invented);
  const questions = makeQuestions(random, invented, 100);
  for (const question of questions) question.answer = made[question.answer].id;
  const stored = graph.listNotes();
  const searches = runSearches(graph, questions);
  rmSync(directory, { recursive: true });
  return { seed: SEED, dimension, rules, notes: stored, searches };
}

async function resolveKeys() {
  const { Nugget } = await load("memory.js");
  const random = randomFrom(SEED);
  const facts = makeFacts(random, 200);
  const questions = makeFactQuestions(random, facts, 500);
  const nugget = new Nugget({ name: "keys", D: 1024, autoSave: false });
  for (const { key, value } of facts) nugget.remember(key, value);
  for (const question of questions) {
    const recalled = nugget.recall(question.text);
    Object.assign(question, { found: recalled.found ? recalled.key : null, confidence: recalled.confidence });
  }
  return { seed: SEED, facts, questions };
}

/** One store of `count` facts; the name's first four bytes are the program's whole seed. */
function recallStore(Nugget, dimension, count, store, deadline) {
  const name = String.fromCharCode(97 + (store % 26), 97 + (Math.floor(store / 26) % 26)) + "zz";
  const nugget = new Nugget({ name, D: dimension, autoSave: false });
  for (let i = 0; i < count; i++) nugget.remember(`key ${store} ${i}`, `value ${store} ${i}`);
  nugget.recall(`key ${store} 0`);
  let [recalls, right, milliseconds] = [0, 0, 0];
  const limit = Math.min(count, RECALLS_A_CELL);
  const step = count / limit;
  const until = Date.now() + deadline;
  for (let i = 0; i < limit && Date.now() < until; i++) {
    // A stride prime to every count asks across the banks and ages, however early the time is up.
    const at = Math.floor(i * step * 7919) % count;
    const started = performance.now();
    const { answer } = nugget.recall(`key ${store} ${at}`);
    milliseconds += performance.now() - started;
    recalls++;
    if (answer === `value ${store} ${at}`) right++;
  }
  return { recalls, right, milliseconds };
}

async function capacity() {
  const { Nugget } = await load("memory.js");
  const cells = [];
  for (const count of FACT_COUNTS) {
    for (const dimension of DIMENSIONS) {
      const cell = { facts: count, dimension, recalls: 0, right: 0, milliseconds: 0 };
      const started = Date.now();
      for (let store = 0; store < 26 * 26; store++) {
        const one = recallStore(Nugget, dimension, count, store, CELL_SECONDS * 1000);
        for (const field of Object.keys(one)) cell[field] += one[field];
        if (cell.recalls >= RECALLS_A_CELL || Date.now() - started > CELL_SECONDS * 1000) break;
      }
      cells.push(cell);
      console.error(JSON.stringify(cell));
      writeFileSync(output, JSON.stringify({ cells }));
    }
  }
  return { cells };
}

const programs = { notes, resolve: resolveKeys, capacity };
writeFileSync(output, JSON.stringify(await programs[what]()));
