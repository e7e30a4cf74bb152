-- The ledger of captures, and access. Run with search_path nugget, public.

-- Roles are of the whole server and not of one database: another database's migration may create them at this moment.
DO $$
DECLARE name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['nugget_server', 'nugget_dispatch', 'nugget_access'] LOOP
        FOR attempt IN 1..20 LOOP
            BEGIN
                IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name) THEN
                    EXECUTE format('CREATE ROLE %I NOLOGIN', name);
                END IF;
                -- From version 16 on, who may create a role is its member without being able to become it.
                IF NOT pg_has_role(current_user, name, CASE WHEN current_setting('server_version_num')::int >= 160000
                                                       THEN 'SET' ELSE 'MEMBER' END) THEN
                    EXECUTE format('GRANT %I TO CURRENT_USER', name);
                END IF;
                EXIT;
            EXCEPTION WHEN duplicate_object OR unique_violation OR internal_error THEN
                PERFORM pg_sleep(0.05);
            END;
        END LOOP;
    END LOOP;
END $$;

-- Brains, and who may use them --------------------------------------------------------------------------------------

CREATE TABLE brains (
    id             int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    slug           text COLLATE "C" NOT NULL UNIQUE,
    remote         text NOT NULL,
    default_branch text,
    model          text NOT NULL,
    dimensions     int NOT NULL,
    -- What readers see; moved by the transaction that publishes an index.
    generation     bigint NOT NULL DEFAULT 0,
    served_commit  text,
    chunks         bigint NOT NULL DEFAULT 0,
    words          bigint NOT NULL DEFAULT 0,
    next_row       bigint NOT NULL DEFAULT 0,  -- rows of chunks, never used twice
    created        timestamptz NOT NULL DEFAULT now()
);

-- Which brain a project's sessions belong to: a repository's address, or a prefix of addresses. Not used yet.
CREATE TABLE projects (
    match text COLLATE "C" PRIMARY KEY,
    brain int NOT NULL REFERENCES brains
);

CREATE TABLE tokens (
    id        int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    hash      bytea NOT NULL UNIQUE CHECK (length(hash) = 32),  -- blake3; the token itself is nowhere
    subject   text NOT NULL,
    scopes    text[] NOT NULL,
    brains    int[] NOT NULL,
    created   timestamptz NOT NULL DEFAULT now(),
    expires   timestamptz NOT NULL,
    revoked   timestamptz,
    last_used date
);

CREATE TABLE audit (
    id      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at      timestamptz NOT NULL DEFAULT now(),
    subject text NOT NULL,
    action  text NOT NULL,                  -- a word such as token.create; no content
    brain   int,
    object  bigint                          -- the token or capture that it was about
);
CREATE INDEX audit_at ON audit(at);

CREATE TABLE servers (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,  -- one for each start of a process
    host     text NOT NULL,
    version  text NOT NULL,
    since    timestamptz NOT NULL DEFAULT now(),
    seen     timestamptz NOT NULL DEFAULT now(),
    draining bool NOT NULL DEFAULT false
);

-- Which server syncs a brain with git, and when one last did.
CREATE TABLE syncs (
    brain       int PRIMARY KEY REFERENCES brains ON DELETE CASCADE,
    synced      timestamptz NOT NULL DEFAULT 'epoch',
    server      bigint,
    lease_until timestamptz
) WITH (fillfactor = 50);

-- The ledger --------------------------------------------------------------------------------------------------------
-- The keys of its tables have the brain, and so do the references between them: a row cannot refer to a capture
-- of another brain. Captures do not refer to brains: each insertion would lock the one row that all of them share.

-- One row for each capture, for ever. What changes while it is worked on is in jobs; stage, attempts and reason are
-- set when it ends.
CREATE TABLE captures (
    brain       int NOT NULL,
    id          bigint GENERATED ALWAYS AS IDENTITY,
    key         bytea NOT NULL CHECK (length(key) = 32),  -- blake3 of the session and the lines' uuids
    session_id  text COLLATE "C" NOT NULL,
    project     text,
    subject     text NOT NULL,
    origin      text NOT NULL,
    ended       timestamptz,                -- the session
    outcome     text COLLATE "C" CHECK (outcome IN ('done', 'nothing', 'dead')),
    stage       text COLLATE "C",
    attempts    int NOT NULL DEFAULT 0,
    reason      text,
    branch      text COLLATE "C",
    commit_id   text COLLATE "C",
    units       int NOT NULL DEFAULT 0,
    pushed      text COLLATE "C",
    pull_number bigint,
    pull_url    text,
    pull_state  text COLLATE "C" CHECK (pull_state IN ('open', 'merged', 'closed')),
    added       timestamptz NOT NULL DEFAULT now(),
    started     timestamptz,
    finished    timestamptz,
    PRIMARY KEY (brain, id),
    UNIQUE (brain, key)
) WITH (fillfactor = 85);
CREATE INDEX captures_branch ON captures(brain, branch, id) WHERE branch IS NOT NULL;
CREATE INDEX captures_dead ON captures(brain, id) WHERE outcome = 'dead';
CREATE INDEX captures_undelivered ON captures(brain, id)
    WHERE outcome = 'done' AND branch IS NOT NULL AND pushed IS NULL AND pull_state IS NULL;
CREATE INDEX captures_undecided ON captures(brain, id)
    WHERE outcome = 'done' AND pushed IS NOT NULL AND coalesce(pull_state, 'open') = 'open';

-- Fencing tokens. They are compared for equality only, so a cache for each connection does no harm.
CREATE SEQUENCE claim_seq CACHE 32;

-- One row for each unfinished capture: claims never walk over finished ones.
CREATE TABLE jobs (
    brain       int NOT NULL,
    id          bigint NOT NULL,
    session_id  text COLLATE "C" NOT NULL,
    stage       text COLLATE "C" NOT NULL,
    since       timestamptz NOT NULL DEFAULT clock_timestamp(),  -- at this stage
    claim       bigint,
    server      bigint,
    lease_until timestamptz,
    attempts    int NOT NULL DEFAULT 0,
    takeovers   int NOT NULL DEFAULT 0,     -- claims at this stage that ended with their server
    not_before  timestamptz NOT NULL DEFAULT 'epoch',
    reason      text,
    -- Only jobs_ready begins with the brain. Where the planner has no statistics yet, as in the first minute of a burst,
    -- it takes any index that does: by a key (brain, id) a claim among 10,000 jobs took 9 s.
    PRIMARY KEY (id, brain),
    FOREIGN KEY (brain, id) REFERENCES captures ON DELETE CASCADE
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500,
        autovacuum_analyze_scale_factor = 0.2);
CREATE INDEX jobs_ready ON jobs(brain, stage, id) WHERE claim IS NULL;
CREATE INDEX jobs_session ON jobs(session_id, brain, id) WHERE stage <> 'delivery';
CREATE INDEX jobs_lease ON jobs(lease_until) WHERE claim IS NOT NULL;
-- One branch and one push of a brain at a time.
CREATE UNIQUE INDEX jobs_one_git ON jobs(brain) WHERE stage = 'git' AND claim IS NOT NULL;
CREATE UNIQUE INDEX jobs_one_delivery ON jobs(brain) WHERE stage = 'delivery' AND claim IS NOT NULL;

-- What a stage stored for the next one; deleted when the capture has ended and no pull request is open.
CREATE TABLE results (
    brain      int NOT NULL,
    capture_id bigint NOT NULL,
    body       bytea NOT NULL,
    PRIMARY KEY (brain, capture_id),
    FOREIGN KEY (brain, capture_id) REFERENCES captures ON DELETE CASCADE
);

-- The transcript lines that were captured. A capture has hundreds: a reference would be checked for each, so the one
-- statement that deletes a capture deletes its lines itself.
CREATE TABLE lines (
    brain      int NOT NULL,
    uuid       text COLLATE "C" NOT NULL,
    capture_id bigint NOT NULL,
    PRIMARY KEY (brain, uuid)
);
CREATE INDEX lines_capture ON lines(brain, capture_id);

-- The ids that captures gave to new units, and the units' texts as vectors, [dimensions] f32 little-endian.
CREATE TABLE names (
    brain      int NOT NULL,
    name       text COLLATE "C" NOT NULL,
    capture_id bigint NOT NULL,
    title      text COLLATE "C" NOT NULL,
    model      text NOT NULL,
    vector     bytea NOT NULL,
    PRIMARY KEY (brain, name),
    FOREIGN KEY (brain, capture_id) REFERENCES captures ON DELETE CASCADE
);
CREATE INDEX names_capture ON names(brain, capture_id, name);

-- What captures add to existing units.
CREATE TABLE additions (
    brain      int NOT NULL,
    unit       text COLLATE "C" NOT NULL,
    capture_id bigint NOT NULL,
    position   int NOT NULL,
    title      text COLLATE "C" NOT NULL,
    model      text NOT NULL,
    vector     bytea NOT NULL,
    PRIMARY KEY (brain, unit, capture_id, position),
    FOREIGN KEY (brain, capture_id) REFERENCES captures ON DELETE CASCADE
);
CREATE INDEX additions_capture ON additions(brain, capture_id);

-- The transcript lines that each unit rests on, which outlive the transcript.
CREATE TABLE evidence (
    brain      int NOT NULL,
    unit       text COLLATE "C" NOT NULL,
    capture_id bigint NOT NULL,
    position   int NOT NULL,
    line       text NOT NULL,
    excerpt    text NOT NULL,
    PRIMARY KEY (brain, unit, capture_id, position),
    FOREIGN KEY (brain, capture_id) REFERENCES captures ON DELETE CASCADE
);
CREATE INDEX evidence_capture ON evidence(brain, capture_id);

-- Parsed answers of models, so that a retry does not pay for them again; deleted when the capture ends.
CREATE TABLE answers (
    brain      int NOT NULL,
    capture_id bigint NOT NULL,
    question   text COLLATE "C" NOT NULL,   -- a digest
    body       bytea NOT NULL,
    PRIMARY KEY (brain, capture_id, question),
    FOREIGN KEY (brain, capture_id) REFERENCES captures ON DELETE CASCADE
);

-- The cost of model calls, each entered before it is made. It outlives the capture's record: the money is spent.
CREATE TABLE spend (
    brain              int NOT NULL,
    id                 bigint GENERATED ALWAYS AS IDENTITY,
    at                 timestamptz NOT NULL,
    capture_id         bigint,
    estimated          bool NOT NULL,
    model              text NOT NULL,
    backend            text NOT NULL,
    input_tokens       bigint NOT NULL,
    output_tokens      bigint NOT NULL,
    cache_write_tokens bigint NOT NULL,
    cache_read_tokens  bigint NOT NULL,
    microdollars       bigint NOT NULL,
    PRIMARY KEY (brain, id)
);
CREATE INDEX spend_at ON spend(brain, at);
CREATE INDEX spend_capture ON spend(brain, capture_id);

CREATE TABLE pauses (
    brain int NOT NULL,
    stage text COLLATE "C" NOT NULL,
    since timestamptz NOT NULL,
    until timestamptz NOT NULL,
    times int NOT NULL,                     -- pauses in a row
    why   text NOT NULL,
    PRIMARY KEY (brain, stage)
);

-- What a person decided about the files of branches, and what is not to be proposed again. Neither is deleted with a
-- capture's record.
CREATE TABLE decisions (
    brain    int NOT NULL,
    branch   text COLLATE "C" NOT NULL,
    path     text COLLATE "C" NOT NULL,
    decision text COLLATE "C" NOT NULL CHECK (decision IN ('merged', 'rejected', 'later')),
    because  text,
    until    timestamptz,
    at       timestamptz NOT NULL,
    PRIMARY KEY (brain, branch, path)
);
CREATE TABLE rejected (
    brain   int NOT NULL,
    unit    text COLLATE "C" NOT NULL,
    title   text COLLATE "C" NOT NULL,
    model   text COLLATE "C" NOT NULL,
    vector  bytea NOT NULL,
    because text,
    at      timestamptz NOT NULL,
    PRIMARY KEY (brain, unit, title, model)
);

-- Status reports of running processes.
CREATE TABLE reports (
    brain int NOT NULL,
    name  text COLLATE "C" NOT NULL,
    pid   bigint NOT NULL,
    at    timestamptz NOT NULL,
    body  text NOT NULL,
    PRIMARY KEY (brain, name)
);

-- Isolation ---------------------------------------------------------------------------------------------------------
-- Every table with a column brain is forced to its policies, also for its owner. nugget_server sees the brains that
-- its transaction names; nugget_dispatch hands out jobs of all brains and sees no content; nugget_access knows brains
-- and tokens and no ledger.

DO $$
DECLARE
    name regclass;
    wanted CONSTANT text := $q$ANY (string_to_array(current_setting('nugget.brains', true), ',')::int[])$q$;
BEGIN
    FOR name IN SELECT attrelid FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
        WHERE attname = 'brain' AND relkind = 'r' AND relnamespace = 'nugget'::regnamespace
    LOOP
        EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY', name);
        EXECUTE format('CREATE POLICY brains ON %s TO nugget_server USING (brain = %s) WITH CHECK (brain = %2$s)',
                       name, wanted);
    END LOOP;
    ALTER TABLE brains ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
    EXECUTE format('CREATE POLICY brains ON brains TO nugget_server USING (id = %s) WITH CHECK (id = %1$s)', wanted);
END $$;

REVOKE ALL ON SCHEMA nugget FROM PUBLIC;
GRANT USAGE ON SCHEMA nugget TO nugget_server, nugget_dispatch, nugget_access;
GRANT SELECT ON schema_version TO nugget_server, nugget_dispatch, nugget_access;

GRANT SELECT, INSERT, UPDATE, DELETE
    ON captures, jobs, results, lines, names, additions, evidence, answers, spend, pauses, decisions, rejected, reports
    TO nugget_server;
GRANT USAGE ON SEQUENCE claim_seq TO nugget_server;
GRANT SELECT, UPDATE (generation, served_commit, chunks, words, next_row) ON brains TO nugget_server;
GRANT INSERT ON audit TO nugget_server;

GRANT SELECT (brain, id, stage, since, claim, server, lease_until, not_before, attempts, takeovers),
      UPDATE (claim, server, lease_until, attempts, takeovers)
    ON jobs TO nugget_dispatch;
GRANT SELECT, INSERT, UPDATE, DELETE ON servers TO nugget_dispatch;
GRANT SELECT, UPDATE ON syncs TO nugget_dispatch;
GRANT SELECT (brain, stage, until) ON pauses TO nugget_dispatch;
CREATE POLICY dispatch ON pauses TO nugget_dispatch USING (true);
CREATE POLICY dispatch ON jobs TO nugget_dispatch USING (true);
CREATE POLICY dispatch ON syncs TO nugget_dispatch USING (true);

GRANT SELECT, INSERT, UPDATE, DELETE ON brains, projects, tokens TO nugget_access;
GRANT SELECT, INSERT ON audit TO nugget_access;
GRANT INSERT ON syncs TO nugget_access;
CREATE POLICY access ON brains TO nugget_access USING (true);
CREATE POLICY access ON projects TO nugget_access USING (true);
CREATE POLICY access ON audit TO nugget_access USING (true);
CREATE POLICY access ON syncs TO nugget_access USING (true);
