-- name: whole
-- What is read of each entry `e`, and at the end whether its epoch and its documents are what they
-- were.
SELECT e.id, e.principal, e.exact_key, e.normal_key, e.question, e.answer, e.reading, e.state,
       e.created_at, e.expire_at, e.version, e.model, e.embedder, e.kid, e.signature,
       (SELECT json_agg(json_build_array(l.names, l.content, l.raw, l.rank, l.cited, l.access)
                        ORDER BY l.position)
          FROM ragcache.lineage l
         WHERE l.tenant = %(tenant)s AND l.entry = e.id) AS lineage,
       e.epoch = coalesce(
           (SELECT n.epoch FROM ragcache.namespace n
             WHERE n.tenant = %(tenant)s AND n.namespace = e.namespace), 0)
       AND 0 = (
           SELECT count(*) FROM ragcache.lineage_name l
            WHERE l.tenant = %(tenant)s AND l.entry = e.id
              AND l.number <> coalesce(
                  (SELECT d.number FROM ragcache.document d
                    WHERE d.tenant = %(tenant)s AND d.name = l.name), 0)) AS current

-- name: find_exact
-- Entries under either key, the exact key before the other, the newest first. A partition holds
-- one namespace and one group of sharers. Expired ones are among them, so that a miss can say so.
-- Each key is looked up by itself, and what is compared with each entry is asked for each entry:
-- this plan is kept, also while the table grows, and must not be one of those that read a whole
-- partition because there once were few rows in it; hence `|| ''`, for which there is no index.
-- include: whole
  FROM (SELECT * FROM ragcache.entry e
         WHERE e.tenant = %(tenant)s AND e.exact_key = %(exact)s
         UNION ALL
        SELECT * FROM ragcache.entry e
         WHERE e.tenant = %(tenant)s AND e.normal_key = %(normal)s
           AND e.exact_key <> %(exact)s) AS e
 WHERE e.partition || '' = %(partition)s
   AND (e.state = 'live'
        OR e.state = 'quarantined' AND e.reason = '' AND e.principal = %(principal)s)
 ORDER BY e.exact_key = %(exact)s DESC, e.created_at DESC, e.id
 LIMIT 16

-- name: find_near
-- The nearest rows of one partition: distance is ranked among this partition's rows alone. With
-- `+ 0` behind the distance no index can give the order, so that every row is looked at. For a
-- partition with a graph of its own, `graph` says once more which it is, as constants: then the
-- plan that walks the graph can be kept (planning takes as long as walking).
-- include: whole
     , e.distance
  FROM (SELECT e.*, e.{column}::{type}({dimensions}) <=> %(vector)b::{type}({dimensions}) AS distance
          FROM ragcache.entry e
         WHERE e.tenant = %(tenant)s
           AND e.partition = %(partition)s
           AND e.embedder = %(embedder)s
           AND e.dimensions = {dimensions} {graph}
           AND e.namespace = %(namespace)s
           AND e.sharing = %(sharing)s
           AND e.needs <@ %(access)s::text[]
           AND (e.state = 'live'
                OR e.state = 'quarantined' AND e.reason = '' AND e.principal = %(principal)s)
           AND e.expire_at > %(now)s
           AND e.epoch = coalesce(
               (SELECT n.epoch FROM ragcache.namespace n
                 WHERE n.tenant = %(tenant)s AND n.namespace = %(namespace)s), 0)
         ORDER BY (e.{column}::{type}({dimensions}) <=> %(vector)b::{type}({dimensions})) {exactly}
         LIMIT %(reach)s) AS e

-- name: near_indexes
-- The vector indexes that maintenance has built and that are whole.
SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
 WHERE i.indrelid = 'ragcache.entry'::regclass AND i.indisvalid
   AND c.relname LIKE 'entry\_near\_%%' ESCAPE '\'

-- name: find_entries
-- The given entries.
-- include: whole
  FROM ragcache.entry e
 WHERE e.tenant = %(tenant)s AND e.id = ANY(%(ids)s::text[])

-- name: snapshot
-- The epoch and the change numbers that an answer begun now depends on. No epoch where the
-- namespace has no row yet.
SELECT (SELECT n.epoch FROM ragcache.namespace n
         WHERE n.tenant = %(tenant)s AND n.namespace = %(namespace)s),
       coalesce((SELECT json_object_agg(d.name, d.number) FROM ragcache.document d
                  WHERE d.tenant = %(tenant)s AND d.name = ANY(%(names)s::text[])), '{}'::json)
