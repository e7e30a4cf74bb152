-- The shared index: derived from git at brains.served_commit, and what `publish` last wrote. See src/team/index.

ALTER TABLE brains
    ADD COLUMN IF NOT EXISTS units bigint NOT NULL DEFAULT 0,
    -- words::RULES_VERSION of the posting lists
    ADD COLUMN IF NOT EXISTS index_rules int NOT NULL DEFAULT 0;

-- Texts are compared by their bytes, as in SQLite. `digest` is the source::UnitDigest that is compared by `publish`.
CREATE TABLE units (
    brain int NOT NULL,
    id text COLLATE "C" NOT NULL,
    digest bytea NOT NULL,
    chunks int NOT NULL,
    path text NOT NULL,
    title text NOT NULL,
    type text NOT NULL,
    domain text NOT NULL,
    tags text[] NOT NULL,
    confidence double precision NOT NULL,
    source text NOT NULL,
    description text,
    status text,
    created text,
    last_modified text,
    reviewed_by text,
    PRIMARY KEY (brain, id));
CREATE TABLE problems (
    brain int NOT NULL,
    path text COLLATE "C" NOT NULL,
    line bigint NOT NULL,
    what text NOT NULL,
    PRIMARY KEY (brain, path));
-- Only relations to units that exist.
CREATE TABLE relations (
    brain int NOT NULL,
    source text COLLATE "C" NOT NULL,
    target text COLLATE "C" NOT NULL,
    relation text COLLATE "C" NOT NULL,
    PRIMARY KEY (brain, source, target, relation));
CREATE INDEX relations_by_target ON relations (brain, target);

-- Rows are numbered from 0 in each brain. A row that is free is given to another chunk: a number means something within
-- one generation only. Dense rows keep the posting lists short.
CREATE TABLE chunks (
    brain int NOT NULL,
    row bigint NOT NULL,
    unit text COLLATE "C" NOT NULL,
    position int NOT NULL,
    level smallint NOT NULL,
    breadcrumb text NOT NULL,
    text text NOT NULL,
    tokens int NOT NULL,
    PRIMARY KEY (brain, row));
CREATE INDEX chunks_by_unit ON chunks (brain, unit, position);

-- 32 bytes a token, which do not compress.
CREATE TABLE token_vectors (
    brain int NOT NULL,
    row bigint NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (brain, row));
ALTER TABLE token_vectors ALTER data SET STORAGE EXTERNAL;

-- The posting lists; the form of `body` and `places` is said in postings.rs. Lists are written again in place, mostly
-- on their own page (fillfactor), so that the space of old versions is found again without a vacuum.
CREATE TABLE postings (
    brain int NOT NULL,
    term bytea NOT NULL,
    bucket int NOT NULL,
    holding int NOT NULL,
    body bytea NOT NULL,
    places bytea NOT NULL,
    PRIMARY KEY (brain, term, bucket))
    WITH (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE postings ALTER body SET STORAGE EXTERNAL, ALTER places SET STORAGE EXTERNAL;

-- One vector graph for each partition, for all of its brains: the more partitions, the fewer vectors of other brains a
-- search passes. They cost nothing where a statement names its brain (planning 0.1 ms with 16 and with 64).
CREATE TABLE vectors (
    brain int NOT NULL,
    row bigint NOT NULL,
    embedding halfvec(384) NOT NULL,
    PRIMARY KEY (brain, row)) PARTITION BY HASH (brain);
ALTER TABLE vectors ALTER embedding SET STORAGE PLAIN;
DO $$ BEGIN
    FOR number IN 0..63 LOOP
        EXECUTE format('CREATE TABLE vectors_%s PARTITION OF vectors FOR VALUES WITH (MODULUS 64, REMAINDER %s)
            WITH (autovacuum_vacuum_scale_factor = 0.1)', number, number);
        EXECUTE format('CREATE INDEX vectors_%s_graph ON vectors_%s USING hnsw (embedding halfvec_ip_ops)', number, number);
    END LOOP;
END $$;

-- Statements name their brain besides. The planner would count both conditions on the brain and expect a row where a brain
-- has thousands, and then read all of the brain by the next best index; of a CASE it knows nothing and expects one half.
-- The inner SELECT reads the setting once for a statement and not for each row.
DO $$ DECLARE
    of_brains text;
    is_mine text := 'CASE WHEN brain = ANY ((SELECT string_to_array(current_setting(''nugget.brains'', true), '',''))::int[]) THEN true ELSE false END';
BEGIN
    FOREACH of_brains IN ARRAY ARRAY['units', 'problems', 'relations', 'chunks', 'token_vectors', 'postings', 'vectors'] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', of_brains);
        EXECUTE format('ALTER TABLE %I FORCE ROW LEVEL SECURITY', of_brains);
        EXECUTE format('CREATE POLICY brains ON %I USING (%s) WITH CHECK (%s)', of_brains, is_mine, is_mine);
        EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %I TO nugget_server', of_brains);
    END LOOP;
END $$;
-- The policy of `vectors` does not hold for a partition that is addressed by its name.
DO $$ DECLARE partition regclass; BEGIN
    FOR partition IN SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent = 'vectors'::regclass LOOP
        EXECUTE format('REVOKE ALL ON %s FROM PUBLIC, nugget_server', partition);
    END LOOP;
END $$;

-- Who publishes an index says what it was made with.
GRANT UPDATE (model, dimensions, units, index_rules) ON brains TO nugget_server;
