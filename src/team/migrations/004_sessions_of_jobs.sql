-- The dispatcher looks for captures that a worker can claim. Whether one waits for its session's earlier ones it may know,
-- and not which session it is.
CREATE FUNCTION waits_for_session(of_brain int, of_id bigint) RETURNS boolean
    LANGUAGE sql STABLE SECURITY DEFINER SET search_path = nugget, pg_temp AS $$
    SELECT EXISTS (SELECT FROM jobs j JOIN jobs o ON o.brain = j.brain AND o.session_id = j.session_id
        WHERE j.brain = of_brain AND j.id = of_id AND j.stage IN ('intake', 'extraction')
          AND o.stage <> 'delivery' AND o.id < j.id)
$$;
REVOKE ALL ON FUNCTION waits_for_session FROM PUBLIC;
GRANT EXECUTE ON FUNCTION waits_for_session TO nugget_dispatch;
