-- name: begin_tenant
-- The ops role works inside one tenant at a time, like everybody.
SELECT set_config('ragcache.tenant', %(tenant)s, true)

-- name: tenants
-- Which tenants there are: all that the ops role may see without naming one.
SELECT DISTINCT n.tenant FROM ragcache.namespace n ORDER BY n.tenant

-- name: alone
-- Whether nobody else maintains this database; held until the connection ends.
SELECT pg_try_advisory_lock(%(lock)s)

-- name: count_selected
-- How many entries a purge would take.
SELECT count(*) FROM ragcache.entry e WHERE e.tenant = %(tenant)s AND {selection}

-- name: delete_selected_softly
-- Out of service at once; gone for good when maintenance comes by later.
UPDATE ragcache.entry e SET state = 'deleted', reason = %(reason)s, changed_at = clock_timestamp()
 WHERE e.tenant = %(tenant)s AND {selection}

-- name: delete_selected
-- Gone for good, with lineage and uses.
DELETE FROM ragcache.entry e WHERE e.tenant = %(tenant)s AND {selection}

-- name: restore
-- Back into service what was softly deleted, if it is still within its lifetime.
UPDATE ragcache.entry e SET state = 'live', reason = '', changed_at = clock_timestamp()
 WHERE e.tenant = %(tenant)s AND e.id = %(id)s AND e.state = 'deleted'

-- name: promote
-- Served to everybody whom it is shared with, from now on.
UPDATE ragcache.entry e SET state = 'live', reason = '', changed_at = clock_timestamp()
 WHERE e.tenant = %(tenant)s AND e.id = %(id)s AND e.state = 'quarantined'

-- name: tables_with
-- Every table that has a column of this name beside the tenant's, whatever it is for.
SELECT c.relname FROM pg_class c
 WHERE c.relnamespace = 'ragcache'::regnamespace AND c.relkind IN ('r', 'p')
   AND EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'tenant')
   AND EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = %(column)s)
   AND has_table_privilege(c.oid, 'DELETE')
 ORDER BY c.relname

-- name: erase_principal
-- What a principal has left in one table.
DELETE FROM ragcache.{table} t WHERE t.tenant = %(tenant)s AND t.principal = %(writer)s

-- name: erase_tenant
-- What a tenant has left in one table.
DELETE FROM ragcache.{table} t WHERE t.tenant = %(tenant)s

-- name: sweep
-- What can never be served again: expired, purged a while ago, of an older epoch, or built from
-- a document that has changed. In batches, so that no transaction holds many rows.
WITH leaving AS (
    SELECT e.id FROM ragcache.entry e
      LEFT JOIN ragcache.namespace n ON n.tenant = %(tenant)s AND n.namespace = e.namespace
     WHERE e.tenant = %(tenant)s
       AND (e.expire_at <= %(now)s
            OR e.state = 'deleted' AND e.changed_at <= %(deleted_before)s
            OR e.epoch <> coalesce(n.epoch, 0)
            OR EXISTS (SELECT FROM ragcache.lineage_name l
                         LEFT JOIN ragcache.document d
                                ON d.tenant = %(tenant)s AND d.name = l.name
                        WHERE l.tenant = %(tenant)s AND l.entry = e.id
                          AND l.number <> coalesce(d.number, 0)))
     LIMIT %(batch)s
       FOR UPDATE OF e SKIP LOCKED
)
DELETE FROM ragcache.entry e USING leaving
 WHERE e.tenant = %(tenant)s AND e.id = leaving.id

-- name: forget_documents
-- Documents that no entry came from. Not the lately changed: an answer begun before the change
-- may still be on its way.
DELETE FROM ragcache.document d
 WHERE d.tenant = %(tenant)s AND d.changed_at <= %(before)s
   AND NOT EXISTS (SELECT FROM ragcache.lineage_name l
                    WHERE l.tenant = %(tenant)s AND l.name = d.name)

-- name: sweep_states
-- States that have expired, of those who write none any more.
DELETE FROM ragcache.state s WHERE s.tenant = %(tenant)s AND s.expire_at <= %(now)s

-- name: namespaces
-- Each namespace with its own quota and how many entries it holds.
SELECT n.namespace, n.quota, count(e.id)
  FROM ragcache.namespace n
  LEFT JOIN ragcache.entry e ON e.tenant = %(tenant)s AND e.namespace = n.namespace
 WHERE n.tenant = %(tenant)s
 GROUP BY n.namespace, n.quota

-- name: set_quota
-- A quota of the namespace's own; the store's where it is null.
INSERT INTO ragcache.namespace (tenant, namespace, quota)
VALUES (%(tenant)s, %(namespace)s, %(quota)s)
ON CONFLICT (tenant, namespace) DO UPDATE SET quota = excluded.quota

-- name: crowds
-- Partitions with so many vectors of one embedder that an index may pay.
SELECT e.partition, e.embedder, e.dimensions, e.embedding IS NULL, count(*)
  FROM ragcache.entry e
 WHERE e.tenant = %(tenant)s AND e.dimensions IS NOT NULL
 GROUP BY 1, 2, 3, 4
HAVING count(*) >= %(at_least)s

-- name: near_indexes
-- The vector indexes that maintenance has built, and whether each is whole.
SELECT c.relname, i.indisvalid
  FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
 WHERE i.indrelid = 'ragcache.entry'::regclass AND c.relname LIKE 'entry\_near\_%%' ESCAPE '\'

-- name: build_index
-- One tenant's partition in one graph: no neighbour of anybody else takes a place in it. Built with
-- twice the usual care: with the usual, one in seventy searches missed the nearest.
CREATE INDEX CONCURRENTLY {index} ON ragcache.entry
    USING hnsw (({column}::{type}({dimensions})) {operators}) WITH (ef_construction = 128)
    WHERE tenant = {tenant} AND partition = {partition} AND embedder = {embedder}
      AND dimensions = {dimensions}

-- name: drop_index
DROP INDEX CONCURRENTLY IF EXISTS ragcache.{index}

-- name: count_foreign_vectors
-- Entries whose vectors another embedder made.
SELECT count(*) FROM ragcache.entry e
 WHERE e.tenant = %(tenant)s AND e.embedder <> '' AND e.embedder <> %(embedder)s
   AND e.state <> 'deleted' AND e.expire_at > %(now)s

-- name: next_foreign_vectors
-- Some of them, in a fixed order: where the last run ended, the next one goes on. All that their
-- signatures cover, and their scope.
SELECT e.id, e.principal, e.exact_key, e.normal_key, e.question, e.answer, e.reading, e.state,
       e.created_at, e.expire_at, e.version, e.model, e.embedder, e.kid, e.signature,
       (SELECT json_agg(json_build_array(l.names, l.content, l.raw, l.rank, l.cited, l.access)
                        ORDER BY l.position)
          FROM ragcache.lineage l
         WHERE l.tenant = %(tenant)s AND l.entry = e.id) AS lineage,
       true AS current, e.sharing, e.namespace, e.partition, e.access
  FROM ragcache.entry e
 WHERE e.tenant = %(tenant)s AND e.embedder <> '' AND e.embedder <> %(embedder)s
   AND e.state <> 'deleted' AND e.expire_at > %(now)s AND e.id > %(after)s
 ORDER BY e.id LIMIT %(batch)s

-- name: replace_vector
-- Unless the entry has changed hands meanwhile.
UPDATE ragcache.entry e
   SET embedder = %(embedder)s, embedding = %(vector)s::text::vector,
       embedding_half = %(half)s::text::vector::halfvec, reading = %(reading)s::json,
       kid = %(kid)s, signature = %(signature)s
 WHERE e.tenant = %(tenant)s AND e.id = %(id)s AND e.embedder <> %(embedder)s

-- name: stats
-- What each namespace holds.
SELECT e.namespace, count(*),
       count(*) FILTER (WHERE e.state = 'live' AND e.expire_at > %(now)s),
       count(*) FILTER (WHERE e.state = 'quarantined'),
       count(*) FILTER (WHERE e.state = 'deleted'),
       count(*) FILTER (WHERE e.state <> 'deleted' AND e.expire_at <= %(now)s),
       coalesce(sum(u.hits), 0)::bigint,
       sum(pg_column_size(e.*))::bigint
  FROM ragcache.entry e
  LEFT JOIN ragcache.entry_use u ON u.tenant = %(tenant)s AND u.entry = e.id
 WHERE e.tenant = %(tenant)s
 GROUP BY e.namespace ORDER BY e.namespace

-- name: stats_embedders
-- How many vectors each embedder has made.
SELECT e.embedder, count(*) FROM ragcache.entry e
 WHERE e.tenant = %(tenant)s AND e.embedder <> ''
 GROUP BY e.embedder ORDER BY e.embedder

-- name: inspect
-- One entry with everything that is known of it, its vector aside.
SELECT to_jsonb(e.*) - 'embedding' - 'embedding_half' - 'signature' - 'answer' - 'reading',
       e.answer, e.reading,
       (SELECT json_agg(to_jsonb(l.*) - 'tenant' - 'entry' ORDER BY l.position)
          FROM ragcache.lineage l WHERE l.tenant = %(tenant)s AND l.entry = e.id),
       (SELECT json_agg(json_build_object(
                   'name', l.name, 'stored', l.number, 'now', coalesce(d.number, 0))
                   ORDER BY l.name)
          FROM ragcache.lineage_name l
          LEFT JOIN ragcache.document d ON d.tenant = %(tenant)s AND d.name = l.name
         WHERE l.tenant = %(tenant)s AND l.entry = e.id),
       (SELECT n.epoch FROM ragcache.namespace n
         WHERE n.tenant = %(tenant)s AND n.namespace = e.namespace),
       (SELECT to_jsonb(u.*) - 'tenant' - 'entry' FROM ragcache.entry_use u
         WHERE u.tenant = %(tenant)s AND u.entry = e.id)
  FROM ragcache.entry e
 WHERE e.tenant = %(tenant)s AND e.id = %(id)s

-- name: list_entries
-- The newest entries of a tenant.
SELECT e.id, e.question, e.state, e.namespace, e.principal, e.sharing, e.model, e.created_at,
       e.expire_at, coalesce(u.hits, 0)
  FROM ragcache.entry e
  LEFT JOIN ragcache.entry_use u ON u.tenant = %(tenant)s AND u.entry = e.id
 WHERE e.tenant = %(tenant)s
 ORDER BY e.created_at DESC, e.id LIMIT %(limit)s

-- name: audit_rows
-- What was taken out of service lately.
SELECT a.at, a.action, a.subject, a.reason, a.entries, a.actor FROM ragcache.audit a
 WHERE a.tenant = %(tenant)s ORDER BY a.at DESC, a.id LIMIT %(limit)s
