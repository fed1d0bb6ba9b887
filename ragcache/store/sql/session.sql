-- name: begin_tenant
-- Everything a transaction may do afterwards happens inside this tenant: local to it, so that
-- the next borrower of the connection, also behind pgbouncer, inherits nothing.
SELECT set_config('ragcache.tenant', %(tenant)s, true),
       set_config('statement_timeout', %(timeout_ms)s, true)

-- name: begin_indexed
-- The same for a search in a partition with a graph of its own: the planner, who cannot know how
-- few rows the conditions leave, is told to walk the graph, and to keep that plan; and a walk that
-- runs out of servable rows goes on looking.
SELECT set_config('ragcache.tenant', %(tenant)s, true),
       set_config('statement_timeout', %(timeout_ms)s, true),
       set_config('enable_sort', 'off', true),
       set_config('plan_cache_mode', 'force_generic_plan', true),
       set_config('hnsw.iterative_scan', 'strict_order', true),
       set_config('hnsw.ef_search', %(ef_search)s, true)

-- name: begin_store
-- The same for storing: losing the last answers in a crash costs nothing, waiting for the disk
-- does. Invalidations never run with this setting.
SELECT set_config('ragcache.tenant', %(tenant)s, true),
       set_config('statement_timeout', %(timeout_ms)s, true),
       set_config('synchronous_commit', 'off', true)
