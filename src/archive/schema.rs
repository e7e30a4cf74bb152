//! The tables. Times are milliseconds since the epoch; ids of messages are the 16 bytes of their `uuid`.

/// Each migrates the tables from the previous version; the first creates them.
pub(crate) const MIGRATIONS: [&str; 8] =
    [INITIAL, RECORDS, FEEDBACK, MEMORIES, MODEL_RECORDS, WORD_BREAKS, LINKS_FOUND, RESULTS];

const INITIAL: &str = "
CREATE TABLE sessions (
    id             INTEGER PRIMARY KEY,
    session        TEXT NOT NULL UNIQUE,      -- the client's id; of a subagent `<parent>/<agent>`
    parent         TEXT,                      -- of a subagent: the session that called it
    source         TEXT NOT NULL,             -- the client
    project        TEXT NOT NULL,             -- its key: the remote, else git's common folder, else the folder
    path           TEXT NOT NULL,             -- the project's folder when the session began
    cwd            TEXT NOT NULL,
    branch         TEXT,
    client_version TEXT,
    model          TEXT,                      -- the last one
    title          TEXT,
    first_prompt   TEXT,                      -- its beginning
    started_ms     INTEGER,
    ended_ms       INTEGER,
    messages       INTEGER NOT NULL DEFAULT 0,   -- with those shared with an earlier session
    prompts        INTEGER NOT NULL DEFAULT 0,   -- of a person
    answers        INTEGER NOT NULL DEFAULT 0,   -- texts of the model
    tool_uses      INTEGER NOT NULL DEFAULT 0,
    next_ordinal   INTEGER NOT NULL DEFAULT 0,
    transcript     TEXT NOT NULL,
    archived_ms    INTEGER NOT NULL
);
CREATE INDEX sessions_project ON sessions(project, ended_ms);
CREATE INDEX sessions_ended ON sessions(ended_ms);
CREATE INDEX sessions_parent ON sessions(parent) WHERE parent IS NOT NULL;
-- Names that many rows repeat: of tools, models and files.
CREATE TABLE names (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
-- Texts of one session, several together: compressed together they take half of what each would alone.
CREATE TABLE blobs (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,   -- never used again
    session INTEGER NOT NULL REFERENCES sessions(id),
    length  INTEGER NOT NULL,                 -- in bytes, uncompressed
    body    BLOB NOT NULL                     -- zlib
);
CREATE INDEX blobs_session ON blobs(session);
-- One row for each line of a transcript that says or does something, in the first session that had it.
CREATE TABLE messages_meta (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,   -- that of its words in `messages`
    session         INTEGER NOT NULL REFERENCES sessions(id),
    ordinal         INTEGER NOT NULL,
    uuid            BLOB NOT NULL UNIQUE,
    parent          BLOB,
    kind            INTEGER NOT NULL,
    at_ms           INTEGER,
    request         INTEGER,
    blob            INTEGER,
    position        INTEGER NOT NULL DEFAULT 0,   -- in the blob: the content, and then the thinking
    content_length  INTEGER NOT NULL DEFAULT 0,
    thinking_length INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX messages_session ON messages_meta(session, ordinal);
CREATE INDEX messages_at ON messages_meta(at_ms);
-- The other sessions that have a message too: resumed under a new id, or forked.
CREATE TABLE shared_messages (
    session INTEGER NOT NULL REFERENCES sessions(id),
    ordinal INTEGER NOT NULL,
    message INTEGER NOT NULL REFERENCES messages_meta(id),
    PRIMARY KEY (session, ordinal)
) WITHOUT ROWID;
CREATE INDEX shared_messages_message ON shared_messages(message);
-- All messages of each session, its own and those that it shares.
CREATE VIEW session_messages AS
    SELECT session, ordinal, id AS message FROM messages_meta
    UNION ALL SELECT session, ordinal, message FROM shared_messages;
-- The words of messages. Without their text: that lies compressed in `blobs`.
CREATE VIRTUAL TABLE messages USING fts5(
    content, thinking, tools,
    content = '', contentless_delete = 1, tokenize = 'porter unicode61'
);
-- One row for each call of a model, however many lines its answer was streamed to.
CREATE TABLE requests (
    id          INTEGER PRIMARY KEY,          -- from the digest of the message's id, or of the request's
    session     INTEGER NOT NULL REFERENCES sessions(id),
    request_id  TEXT,
    model       INTEGER NOT NULL REFERENCES names(id),
    at_ms       INTEGER,
    input       INTEGER NOT NULL,
    output      INTEGER NOT NULL,
    cache_read  INTEGER NOT NULL,
    cache_write INTEGER NOT NULL
);
CREATE INDEX requests_session ON requests(session);
CREATE TABLE tool_uses (
    id            INTEGER PRIMARY KEY,
    session       INTEGER NOT NULL REFERENCES sessions(id),
    message       INTEGER NOT NULL REFERENCES messages_meta(id),
    tool_id       TEXT NOT NULL,
    name          INTEGER NOT NULL REFERENCES names(id),
    at_ms         INTEGER,
    input_blob    INTEGER,
    input_at      INTEGER NOT NULL DEFAULT 0,
    input_length  INTEGER NOT NULL DEFAULT 0,
    is_answered   INTEGER NOT NULL DEFAULT 0,
    is_error      INTEGER NOT NULL DEFAULT 0,
    output_blob   INTEGER,
    output_at     INTEGER NOT NULL DEFAULT 0,
    output_length INTEGER NOT NULL DEFAULT 0,
    output_bytes  INTEGER,                    -- the whole output's, if it was shortened
    output_digest BLOB                        -- the whole output's, if it was shortened
);
CREATE INDEX tool_uses_message ON tool_uses(message);
CREATE INDEX tool_uses_session ON tool_uses(session);
CREATE INDEX tool_uses_open ON tool_uses(tool_id) WHERE is_answered = 0;
CREATE TABLE file_modifications (
    session INTEGER NOT NULL REFERENCES sessions(id),
    file    INTEGER NOT NULL REFERENCES names(id),
    times   INTEGER NOT NULL,
    last_ms INTEGER,
    PRIMARY KEY (session, file)
) WITHOUT ROWID;
CREATE INDEX file_modifications_file ON file_modifications(file);
CREATE TABLE links (
    source       INTEGER NOT NULL REFERENCES sessions(id),
    relationship TEXT NOT NULL,               -- continues, related_to, mentions, references
    target       INTEGER NOT NULL REFERENCES sessions(id),
    weight       REAL NOT NULL,
    reason       TEXT NOT NULL,
    PRIMARY KEY (source, relationship, target)
) WITHOUT ROWID;
CREATE INDEX links_target ON links(target);
-- What a session's prompts are about: its most telling words.
CREATE TABLE topics (
    session INTEGER NOT NULL REFERENCES sessions(id),
    word    TEXT NOT NULL,
    times   INTEGER NOT NULL,
    PRIMARY KEY (session, word)
) WITHOUT ROWID;
CREATE INDEX topics_word ON topics(word);
-- How far each transcript was read.
CREATE TABLE extraction_state (
    path         TEXT PRIMARY KEY,
    source       TEXT NOT NULL,
    session      INTEGER,
    bytes        INTEGER NOT NULL DEFAULT 0,  -- to the end of a line
    lines        INTEGER NOT NULL DEFAULT 0,
    digest       BLOB NOT NULL DEFAULT x'',   -- of the beginning and the end of those bytes
    size         INTEGER NOT NULL,            -- of the file when it was read
    modified_ms  INTEGER NOT NULL,
    reader_state TEXT NOT NULL DEFAULT '',
    unknown      TEXT NOT NULL DEFAULT '{}',  -- lines of unknown types, by type
    malformed    INTEGER NOT NULL DEFAULT 0,
    skipped      TEXT                         -- why nothing of it is taken
) WITHOUT ROWID;
CREATE TABLE malformed_lines (
    path   TEXT NOT NULL,
    line   INTEGER NOT NULL,
    reason TEXT NOT NULL,
    PRIMARY KEY (path, line)
) WITHOUT ROWID;
-- Sessions that a person had deleted: they are not taken again.
CREATE TABLE forgotten (session TEXT PRIMARY KEY, at_ms INTEGER NOT NULL) WITHOUT ROWID;
-- The meaning of messages: int8 numbers and the factor that makes floats of them.
CREATE TABLE vectors (
    message INTEGER PRIMARY KEY REFERENCES messages_meta(id),
    model   INTEGER NOT NULL REFERENCES names(id),
    scale   REAL NOT NULL,
    body    BLOB NOT NULL
);
CREATE INDEX vectors_model ON vectors(model);
";

const RECORDS: &str = "
-- Of how many of the session's messages its records were derived.
ALTER TABLE sessions ADD COLUMN derived INTEGER NOT NULL DEFAULT -1;
CREATE INDEX sessions_underived ON sessions(id) WHERE derived <> messages;
-- How often a person changed what the model was about to write.
ALTER TABLE file_modifications ADD COLUMN tuned INTEGER NOT NULL DEFAULT 0;
-- Why code is as it is, by what a session shows. No person has reviewed them.
CREATE TABLE records (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    session        INTEGER NOT NULL REFERENCES sessions(id),
    project        TEXT NOT NULL,             -- the session's
    derivation     TEXT NOT NULL,             -- rules, model
    type           TEXT NOT NULL,
    path           TEXT NOT NULL,             -- within the project; empty for all of it
    symbol         TEXT,
    summary        TEXT NOT NULL,
    detail         TEXT,
    alternatives   TEXT NOT NULL DEFAULT '[]',
    confidence     REAL NOT NULL,
    sha256         BLOB,                      -- of the file when the session was done with it
    prompt         INTEGER,                   -- the message that asked for it
    at_ms          INTEGER NOT NULL,
    stale_after_ms INTEGER
);
CREATE INDEX records_scope ON records(project, path, type, at_ms);
CREATE INDEX records_session ON records(session, derivation);
CREATE VIRTUAL TABLE records_words USING fts5(
    summary, detail, content = 'records', content_rowid = 'id', tokenize = 'porter unicode61'
);
CREATE TRIGGER records_added AFTER INSERT ON records BEGIN
    INSERT INTO records_words (rowid, summary, detail) VALUES (new.id, new.summary, new.detail);
END;
CREATE TRIGGER records_deleted AFTER DELETE ON records BEGIN
    INSERT INTO records_words (records_words, rowid, summary, detail)
        VALUES ('delete', old.id, old.summary, old.detail);
END;
";

/// Of each brain and project.
const FEEDBACK: &str = "
-- What sessions were shown, and what was withheld from them.
CREATE TABLE shown (
    id          INTEGER PRIMARY KEY,
    event       INTEGER NOT NULL,             -- what was shown together has one number
    brain       TEXT NOT NULL,                -- the key in its state folder
    project     TEXT NOT NULL,                -- the session's
    session     INTEGER NOT NULL REFERENCES sessions(id),
    tool_use    TEXT,
    source      TEXT NOT NULL,                -- session-start, prompt, guard, tool
    kind        TEXT NOT NULL,                -- unit, memory
    item        TEXT NOT NULL,
    rank        INTEGER NOT NULL,
    propensity  REAL NOT NULL,
    tokens      INTEGER NOT NULL,
    is_withheld INTEGER NOT NULL,
    at_ms       INTEGER NOT NULL,
    UNIQUE (event, item)
);
CREATE INDEX shown_session ON shown(session);
CREATE INDEX shown_at ON shown(brain, at_ms);
-- What became of it. A judgement that changes gets a new revision, and none is ever used again.
CREATE TABLE citations (
    shown      INTEGER PRIMARY KEY REFERENCES shown(id),
    outcome    TEXT NOT NULL,                 -- used, contradicted, ignored; withheld
    evidence   TEXT NOT NULL,                 -- JSON
    has_failed INTEGER,                       -- whether a failure that it names happened afterwards
    messages   INTEGER NOT NULL,              -- of the session when it was judged
    revision   INTEGER NOT NULL,
    judged_ms  INTEGER NOT NULL
);
CREATE INDEX citations_revision ON citations(revision);
-- What the tool was asked, with the candidates and their vectors.
CREATE TABLE questions (
    event   INTEGER PRIMARY KEY,
    brain   TEXT NOT NULL,
    project TEXT NOT NULL,
    session INTEGER NOT NULL REFERENCES sessions(id),
    at_ms   INTEGER NOT NULL,
    body    BLOB NOT NULL
);
CREATE INDEX questions_project ON questions(brain, project, at_ms);
CREATE INDEX questions_session ON questions(session);
-- What was learned. One row is replaced as a whole, so that its parts always belong together.
CREATE TABLE weights (
    brain           TEXT NOT NULL,
    scope           TEXT NOT NULL,            -- the project; * for all
    version         INTEGER NOT NULL,
    model           TEXT NOT NULL,
    dimensions      INTEGER NOT NULL,
    learner         TEXT NOT NULL,            -- empty: the base order stays
    checksum        BLOB,
    applied_through INTEGER NOT NULL,         -- the revision of the last judgement
    questions       INTEGER NOT NULL,
    body            BLOB NOT NULL,
    report          TEXT NOT NULL,            -- JSON
    learned_ms      INTEGER NOT NULL,
    PRIMARY KEY (brain, scope)
);
-- What became of what sessions proposed.
CREATE TABLE extraction_feedback (
    brain   TEXT NOT NULL,
    branch  TEXT NOT NULL,
    path    TEXT NOT NULL,                    -- empty for the whole branch
    outcome TEXT NOT NULL,                    -- merged, rejected, closed
    at_ms   INTEGER NOT NULL,
    PRIMARY KEY (brain, branch, path)
) WITHOUT ROWID;
";

const MEMORIES: &str = "
-- Of how many of the session's messages its memories were made.
ALTER TABLE sessions ADD COLUMN remembered INTEGER NOT NULL DEFAULT -1;
CREATE INDEX sessions_unremembered ON sessions(id) WHERE remembered <> messages AND parent IS NULL;
-- What a session was about, topic by topic. No person has reviewed them.
CREATE TABLE memories (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,   -- never used again
    session     INTEGER NOT NULL REFERENCES sessions(id),
    project     TEXT NOT NULL,                -- the session's
    derivation  TEXT NOT NULL,                -- rules, model
    summary     TEXT NOT NULL,
    dialogue    TEXT NOT NULL,                -- the original words
    turns       TEXT NOT NULL,                -- the messages that it rests on, as JSON
    created_ms  INTEGER NOT NULL,             -- when the topic ended
    updated_ms  INTEGER NOT NULL,
    merged_into INTEGER REFERENCES memories(id)   -- a newer one that says the same
);
CREATE INDEX memories_project ON memories(project, created_ms) WHERE merged_into IS NULL;
CREATE INDEX memories_session ON memories(session);
CREATE INDEX memories_merged ON memories(merged_into) WHERE merged_into IS NOT NULL;
CREATE VIRTUAL TABLE memories_words USING fts5(
    summary, content = 'memories', content_rowid = 'id', tokenize = 'porter unicode61'
);
CREATE TRIGGER memories_added AFTER INSERT ON memories BEGIN
    INSERT INTO memories_words (rowid, summary) VALUES (new.id, new.summary);
END;
CREATE TRIGGER memories_deleted AFTER DELETE ON memories BEGIN
    INSERT INTO memories_words (memories_words, rowid, summary) VALUES ('delete', old.id, old.summary);
END;
-- The meaning of summaries: int8 numbers and the factor that makes floats of them. By project, as they are read.
CREATE TABLE memory_vectors (
    project    TEXT NOT NULL,
    memory     INTEGER NOT NULL REFERENCES memories(id),
    model      INTEGER NOT NULL REFERENCES names(id),
    dimensions INTEGER NOT NULL,
    scale      REAL NOT NULL,
    body       BLOB NOT NULL,
    PRIMARY KEY (project, memory)
) WITHOUT ROWID;
CREATE INDEX memory_vectors_memory ON memory_vectors(memory);
-- Grows with every change of a project's memories, so that a reader sees when what it holds is old.
CREATE TABLE memory_changes (project TEXT PRIMARY KEY, number INTEGER NOT NULL) WITHOUT ROWID;
-- Memories that a person deleted: the digests of their summaries, so that they are not made again.
CREATE TABLE forgotten_memories (
    project TEXT NOT NULL,
    digest  BLOB NOT NULL,
    PRIMARY KEY (project, digest)
) WITHOUT ROWID;
-- What a model that has read a session says of it. The session may be archived later, and read again when it goes on.
CREATE TABLE model_topics (
    session TEXT NOT NULL,                    -- the client's id
    digest  BLOB NOT NULL,                    -- of the summary
    summary TEXT NOT NULL,
    lines   TEXT NOT NULL,                    -- the `uuid`s that it rests on, as JSON
    PRIMARY KEY (session, digest)
) WITHOUT ROWID;
";

const MODEL_RECORDS: &str = "
-- Why code is as it is, as a model that has read a session puts it; beside `model_topics`, and for the same reasons.
CREATE TABLE model_records (
    session TEXT NOT NULL,                    -- the client's id
    digest  BLOB NOT NULL,                    -- of what it says
    record  TEXT NOT NULL,                    -- JSON
    PRIMARY KEY (session, digest)
) WITHOUT ROWID;
";

/// The letters that `with_word_breaks` makes words of, as GLOB has them.
macro_rules! unspaced {
    () => {
        "[\u{e00}-\u{eff}\u{1000}-\u{109f}\u{1780}-\u{17ff}\u{3040}-\u{30ff}\u{31f0}-\u{31ff}\u{3400}-\u{4dbf}\
        \u{4e00}-\u{9fff}\u{ac00}-\u{d7af}\u{f900}-\u{faff}\u{20000}-\u{3ffff}]"
    };
}

/// An expression for the column's text with a break before and after each such letter.
macro_rules! broken {
    ($column:literal) => {
        concat!(
            "iif(",
            $column,
            " GLOB '*",
            unspaced!(),
            "*', (
            WITH RECURSIVE places (place) AS (
                SELECT 1 UNION ALL SELECT place + 1 FROM places WHERE place < length(",
            $column,
            ")
            ),
            letters (place, letter) AS (SELECT place, substr(",
            $column,
            ", place, 1) FROM places)
            SELECT group_concat(
                iif(letter GLOB '",
            unspaced!(),
            "', '\u{200b}' || letter || '\u{200b}', letter), '' ORDER BY place
            ) FROM letters
        ), ",
            $column,
            ")"
        )
    };
}

/// Letters of scripts without spaces are words of records and memories, too. What is added from now on is broken into words
/// before; what there is, here.
const WORD_BREAKS: &str = concat!(
    "
DROP TRIGGER records_added;
DROP TRIGGER records_deleted;
DROP TABLE records_words;
CREATE VIRTUAL TABLE records_words USING fts5(
    summary, detail, content = '', contentless_delete = 1, tokenize = 'porter unicode61'
);
CREATE TRIGGER records_deleted AFTER DELETE ON records BEGIN
    DELETE FROM records_words WHERE rowid = old.id;
END;
DROP TRIGGER memories_added;
DROP TRIGGER memories_deleted;
DROP TABLE memories_words;
CREATE VIRTUAL TABLE memories_words USING fts5(
    summary, content = '', contentless_delete = 1, tokenize = 'porter unicode61'
);
CREATE TRIGGER memories_deleted AFTER DELETE ON memories BEGIN
    DELETE FROM memories_words WHERE rowid = old.id;
END;
INSERT INTO records_words (rowid, summary, detail) SELECT id, ",
    broken!("summary"),
    ", ",
    broken!("detail"),
    " FROM records;
INSERT INTO memories_words (rowid, summary) SELECT id, ",
    broken!("summary"),
    " FROM memories;
"
);

const LINKS_FOUND: &str = "
-- From which sides a link was found, as a session's look-ups are bounded: 1 the source's, 2 the target's, 3 both.
ALTER TABLE links ADD COLUMN found INTEGER NOT NULL DEFAULT 3;
";

const RESULTS: &str = "
-- The message that the output came with.
ALTER TABLE tool_uses ADD COLUMN result INTEGER;
-- The first output of a message lies behind what it says, which is known of failures only.
UPDATE tool_uses SET result = m.id FROM messages_meta m
    WHERE is_error = 1 AND m.kind = 4 AND m.blob = output_blob
    AND m.position + m.content_length + m.thinking_length = output_at;
CREATE INDEX tool_uses_result ON tool_uses(result) WHERE result IS NOT NULL;
-- Sessions that have something new since their links were made.
CREATE TABLE unlinked (session INTEGER PRIMARY KEY REFERENCES sessions(id));
";
