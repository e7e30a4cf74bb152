-- A question reads the token vectors of some 150 chunks. Those of up to 250 tokens stay in the row, and are not found by
-- two to four rows of another table.
ALTER TABLE token_vectors SET (toast_tuple_target = 8160);
