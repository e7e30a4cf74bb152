// Invented facts, notes, questions and their known answers, from a printed seed.
// Both programs read what this writes, so neither sees data that the other did not.

/** Numbers in [0, 1) from a 32-bit seed (xorshift32, Marsaglia 2003). */
export function randomFrom(seed) {
  let state = seed >>> 0 || 1;
  return () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    state >>>= 0;
    return state / 4294967296;
  };
}

const PARTS = ["auth", "billing", "cache", "deploy", "export", "gateway", "import", "invoice", "ledger",
  "login", "mailer", "metrics", "notifier", "parser", "payments", "queue", "reports", "scheduler",
  "search", "session", "signup", "sync", "uploader", "webhook"];
const ASPECTS = ["backoff", "certificate", "column", "deadline", "encoding", "fixture", "header", "index",
  "latency", "limit", "lock", "migration", "pagination", "password", "port", "rate", "replica", "retry",
  "schema", "secret", "snapshot", "timeout", "timezone", "token", "trace", "version"];
const THINGS = ["batch", "bucket", "buffer", "client", "container", "cursor", "daemon", "endpoint", "handler",
  "hook", "loader", "pipeline", "pool", "proxy", "runner", "script", "shard", "store", "stream", "table",
  "template", "thread", "topic", "worker"];
const VERBS = ["blocks", "breaks", "checks", "drops", "fails", "holds", "keeps", "loses", "needs", "reads",
  "rejects", "restarts", "returns", "rotates", "skips", "waits", "writes"];
const FILLERS = ["again", "because", "before", "every", "first", "later", "locally", "nightly", "often",
  "once", "only", "release", "remote", "since", "staging", "twice", "unless", "weekly", "while", "windows"];

const pick = (random, list) => list[Math.floor(random() * list.length)];

function sentence(random, words) {
  const filler = () => pick(random, FILLERS);
  const text = `${filler()} ${words.join(` ${pick(random, VERBS)} ${filler()} `)} ${pick(random, VERBS)}`;
  return `${text[0].toUpperCase()}${text.slice(1)}.`;
}

/** `count` notes with distinct (part, aspect, thing) titles. */
export function makeNotes(random, count) {
  const seen = new Set();
  const notes = [];
  while (notes.length < count) {
    const topic = [pick(random, PARTS), pick(random, ASPECTS), pick(random, THINGS)];
    if (seen.has(topic.join(" "))) continue;
    seen.add(topic.join(" "));
    notes.push(noteOn(random, topic));
  }
  return notes;
}

function noteOn(random, topic) {
  const late = pick(random, ASPECTS);
  const sentences = [sentence(random, [topic[0], topic[2]]), sentence(random, [topic[1], topic[0]])];
  const others = 1 + Math.floor(random() * 4);
  for (let i = 0; i < others; i++) {
    sentences.push(sentence(random, [pick(random, PARTS), pick(random, ASPECTS), pick(random, THINGS)]));
  }
  sentences.push(sentence(random, [late, pick(random, THINGS)]));
  const title = topic.join(" ");
  const prefix = random() < 0.1 ? "pref: " : "";
  return {
    topic,
    late,
    title: prefix + title[0].toUpperCase() + title.slice(1),
    content: sentences.join(" "),
    tags: [topic[0], ...(random() < 0.5 ? [topic[1]] : []), ...(random() < 0.3 ? [pick(random, THINGS)] : [])],
    meta: {
      scope: pick(random, ["user", "project", "project", "shared", "self"]),
      stability: random() < 0.7 ? "durable" : "temporary",
      confidence: Math.round((0.5 + random() * 0.5) * 100) / 100,
    },
  };
}

/** Questions that a note answers, in four kinds; `answer` is the note's place in `notes`. */
export function makeQuestions(random, notes, count) {
  return Array.from({ length: count }, (_, i) => {
    const answer = Math.floor(random() * notes.length);
    const { topic, late } = notes[answer];
    const forms = {
      title: topic.join(" "),
      reordered: `${topic[2]} ${topic[0]} ${pick(random, FILLERS)}`,
      question: `why does the ${topic[0]} ${pick(random, VERBS).slice(0, -1)} on ${topic[1]}`,
      late: `${late} ${topic[1]} ${pick(random, PARTS)}`,
    };
    const kind = Object.keys(forms)[i % 4];
    return { kind, text: forms[kind], answer };
  });
}

/** `count` facts with distinct keys of two or three words. */
export function makeFacts(random, count) {
  const facts = new Map();
  while (facts.size < count) {
    const words = [pick(random, PARTS), pick(random, ASPECTS)];
    if (random() < 0.6) words.push(pick(random, THINGS));
    const key = words.join(pick(random, [" ", "-", "_"]));
    if (!facts.has(key)) facts.set(key, `${pick(random, VERBS)} ${facts.size} ${pick(random, FILLERS)}`);
  }
  return [...facts].map(([key, value]) => ({ key, value }));
}

function misspell(random, text) {
  const at = 1 + Math.floor(random() * (text.length - 2));
  if (random() < 0.5) return text.slice(0, at) + text.slice(at + 1);
  return text.slice(0, at) + text[at + 1] + text[at] + text.slice(at + 2);
}

const joined = (key) => key.replace(/[-_]/g, " ");

/** Questions for facts; `answer` is the key meant, or null where none is known. */
export function makeFactQuestions(random, facts, count) {
  return Array.from({ length: count }, (_, i) => {
    const { key } = pick(random, facts);
    const forms = {
      exact: () => [key.toUpperCase(), key],
      sentence: () => [`what is the ${joined(key)}?`, key],
      reordered: () => [joined(key).split(" ").reverse().join(" "), key],
      misspelt: () => [misspell(random, key), key],
      unknown: () => [`${pick(random, ["granite", "violin", "harbour", "walnut"])} ${pick(random, ["colour",
        "garden", "mountain", "recipe"])}`, null],
    };
    const kind = Object.keys(forms)[i % 5];
    const [text, answer] = forms[kind]();
    return { kind, text, answer };
  });
}
