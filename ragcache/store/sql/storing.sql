-- name: ensure_namespace
-- The row must exist before it can be locked.
INSERT INTO ragcache.namespace (tenant, namespace) VALUES (%(tenant)s, %(namespace)s)
ON CONFLICT DO NOTHING

-- name: lock_namespace
-- A bump of the epoch waits for this transaction, or this one sees the new epoch.
SELECT n.epoch, n.quota FROM ragcache.namespace n
 WHERE n.tenant = %(tenant)s AND n.namespace = %(namespace)s
   FOR SHARE

-- name: ensure_documents
-- The rows must exist before they can be locked; in one order, so that no two wait crosswise.
INSERT INTO ragcache.document (tenant, name)
SELECT %(tenant)s, name FROM unnest(%(names)s::text[]) AS name ORDER BY name
ON CONFLICT DO NOTHING

-- name: lock_documents
-- A change of one of these documents waits for this transaction, or this one sees it.
SELECT d.name, d.number FROM ragcache.document d
 WHERE d.tenant = %(tenant)s AND d.name = ANY(%(names)s::text[])
 ORDER BY d.name
   FOR SHARE

-- name: supersede
-- A newer answer of the same writer takes the place of the older one.
DELETE FROM ragcache.entry e
 WHERE e.tenant = %(tenant)s AND e.exact_key = %(exact)s AND e.principal = %(principal)s
   AND e.id <> %(id)s

-- name: insert_entry
-- The entry, its lineage and the names that can kill it, in one statement.
WITH stored AS (
    INSERT INTO ragcache.entry
           (tenant, id, principal, sharing, namespace, partition, access, needs, exact_key,
            normal_key, question, answer, reading, state, created_at, expire_at, changed_at,
            epoch, version, model, embedder, embedding, embedding_half, kid, signature)
    VALUES (%(tenant)s, %(id)s, %(principal)s, %(sharing)s, %(namespace)s, %(partition)s,
            %(access)s::text[], %(needs)s::text[], %(exact)s, %(normal)s, %(question)s,
            %(answer)s::json, %(reading)s::json, %(state)s, %(created_at)s, %(expire_at)s,
            %(created_at)s, %(epoch)s, %(version)s, %(model)s, %(embedder)s, %(vector)b::vector,
            %(half)b::vector::halfvec, %(kid)s, %(signature)b)
    ON CONFLICT DO NOTHING
    RETURNING id
), lines AS (
    INSERT INTO ragcache.lineage
           (tenant, entry, position, names, content, raw, rank, cited, access)
    SELECT %(tenant)s, stored.id, l.position,
           ARRAY(SELECT json_array_elements_text(l.names)), l.content, l.raw, l.rank, l.cited,
           ARRAY(SELECT json_array_elements_text(l.access))
      FROM stored,
           json_to_recordset(%(lineage)s::json) AS l
               (position integer, names json, content text, raw text, rank integer,
                cited boolean, access json)
), names AS (
    INSERT INTO ragcache.lineage_name (tenant, entry, name, number)
    SELECT %(tenant)s, stored.id, n.name, n.number
      FROM stored, unnest(%(names)s::text[], %(numbers)s::bigint[]) AS n (name, number)
)
SELECT count(*) FROM stored

-- name: stored_id
-- Which entry holds this key for this writer: storing twice is storing once.
SELECT e.id FROM ragcache.entry e
 WHERE e.tenant = %(tenant)s AND e.exact_key = %(exact)s AND e.principal = %(principal)s

-- name: touch
-- Note a hit, apart from the entry: a hit never extends a lifetime nor rewrites a vector. An entry
-- that somebody is removing is waited for, and then is gone: there is nothing to note.
INSERT INTO ragcache.entry_use AS u (tenant, entry, last_hit_at)
SELECT e.tenant, e.id, %(now)s FROM ragcache.entry e
 WHERE e.tenant = %(tenant)s AND e.id = %(id)s
   FOR KEY SHARE
ON CONFLICT (tenant, entry) DO UPDATE
   SET last_hit_at = greatest(u.last_hit_at, excluded.last_hit_at), hits = u.hits + 1

-- name: count_entries
-- How many entries a namespace holds.
SELECT count(*) FROM ragcache.entry e
 WHERE e.tenant = %(tenant)s AND e.namespace = %(namespace)s

-- name: evict
-- Make room: what can no longer be served first, then what was used longest ago.
WITH leaving AS (
    SELECT e.id FROM ragcache.entry e
      LEFT JOIN ragcache.entry_use u ON u.tenant = e.tenant AND u.entry = e.id
     WHERE e.tenant = %(tenant)s AND e.namespace = %(namespace)s
     ORDER BY e.state = 'live' AND e.expire_at > %(now)s,
              coalesce(u.last_hit_at, e.created_at), e.id
     LIMIT %(excess)s
)
DELETE FROM ragcache.entry e USING leaving
 WHERE e.tenant = %(tenant)s AND e.id = leaving.id

-- name: same_words
-- Entries of other writers under either key, those that wait in quarantine too.
SELECT e.id FROM ragcache.entry e
 WHERE e.tenant = %(tenant)s
   AND (e.exact_key = %(exact)s OR e.normal_key = %(normal)s)
   AND e.partition = %(partition)s
   AND e.principal <> %(principal)s
   AND (e.state = 'live' OR e.state = 'quarantined' AND e.reason = '')
   AND e.expire_at > %(now)s
   AND e.epoch = coalesce(
       (SELECT n.epoch FROM ragcache.namespace n
         WHERE n.tenant = %(tenant)s AND n.namespace = %(namespace)s), 0)
 ORDER BY e.created_at DESC, e.id
 LIMIT %(others)s

-- name: find_around
-- The nearest rows of one partition, whoever wrote them and whether they wait or not, but not the
-- one whose place the new one will take. Every row is looked at: nobody waits for this.
SELECT e.id, e.principal = %(principal)s,
       e.{column}::{type}({dimensions}) <=> %(vector)b::{type}({dimensions}) AS distance
  FROM ragcache.entry e
 WHERE e.tenant = %(tenant)s
   AND e.partition = %(partition)s
   AND e.embedder = %(embedder)s
   AND e.dimensions = {dimensions} {graph}
   AND (e.principal <> %(principal)s OR e.exact_key <> %(exact)s)
   AND (e.state = 'live' OR e.state = 'quarantined' AND e.reason = '')
   AND e.expire_at > %(now)s
   AND e.epoch = coalesce(
       (SELECT n.epoch FROM ragcache.namespace n
         WHERE n.tenant = %(tenant)s AND n.namespace = %(namespace)s), 0)
 ORDER BY (e.{column}::{type}({dimensions}) <=> %(vector)b::{type}({dimensions})) {exactly}
 LIMIT %(reach)s
