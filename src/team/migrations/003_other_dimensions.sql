-- The vectors of brains whose model has another number of dimensions than the built-in one. A graph holds vectors of one
-- length only, so these are compared one by one. They lie in their row up to 4,000 dimensions.
CREATE TABLE other_vectors (
    brain int NOT NULL,
    row bigint NOT NULL,
    embedding halfvec NOT NULL,
    PRIMARY KEY (brain, row))
    WITH (toast_tuple_target = 8160, autovacuum_vacuum_scale_factor = 0.1);
ALTER TABLE other_vectors ALTER embedding SET STORAGE EXTERNAL;
ALTER TABLE other_vectors ENABLE ROW LEVEL SECURITY;
ALTER TABLE other_vectors FORCE ROW LEVEL SECURITY;
-- As in 002_index.sql, and for the reasons said there.
CREATE POLICY brains ON other_vectors
    USING (CASE WHEN brain = ANY ((SELECT string_to_array(current_setting('nugget.brains', true), ','))::int[]) THEN true ELSE false END)
    WITH CHECK (CASE WHEN brain = ANY ((SELECT string_to_array(current_setting('nugget.brains', true), ','))::int[]) THEN true ELSE false END);
GRANT SELECT, INSERT, UPDATE, DELETE ON other_vectors TO nugget_server;
