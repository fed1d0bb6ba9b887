-- name: recall
SELECT s.value FROM ragcache.state s
 WHERE s.tenant = %(tenant)s AND s.kind = %(kind)s AND s.key = %(key)s AND s.expire_at > %(now)s

-- name: remember
-- What has expired leaves a few rows at a time, with whoever writes next.
WITH gone AS (
    DELETE FROM ragcache.state s
     WHERE s.tenant = %(tenant)s
       AND (s.kind, s.key) IN (
           SELECT o.kind, o.key FROM ragcache.state o
            WHERE o.tenant = %(tenant)s AND o.expire_at <= %(now)s
              AND (o.kind, o.key) <> (%(kind)s, %(key)s)
            ORDER BY o.expire_at LIMIT 20 FOR UPDATE SKIP LOCKED)
)
INSERT INTO ragcache.state AS s (tenant, kind, key, principal, value, expire_at)
VALUES (%(tenant)s, %(kind)s, %(key)s, %(principal)s, %(value)s::json, %(expire_at)s)
ON CONFLICT (tenant, kind, key) DO UPDATE
   SET value = excluded.value, principal = excluded.principal, expire_at = excluded.expire_at

-- name: exchange
-- In place of the version that was seen, and of no other: where two count at the same time, one of
-- them finds its version gone and counts again.
INSERT INTO ragcache.state AS s (tenant, kind, key, value, expire_at)
SELECT %(tenant)s, %(kind)s, %(key)s, %(value)s::json, %(expire_at)s
 WHERE %(seen)s = 0
    OR EXISTS (SELECT FROM ragcache.state o
                WHERE o.tenant = %(tenant)s AND o.kind = %(kind)s AND o.key = %(key)s)
ON CONFLICT (tenant, kind, key) DO UPDATE
   SET value = excluded.value, expire_at = excluded.expire_at
 WHERE CASE WHEN s.expire_at > %(now)s
            THEN coalesce((s.value ->> 'version')::bigint, 0) ELSE 0 END = %(seen)s

-- name: ensure
-- The row must exist before it can be locked.
INSERT INTO ragcache.state (tenant, kind, key, value, expire_at)
VALUES (%(tenant)s, %(kind)s, %(key)s, '{}', %(expire_at)s)
ON CONFLICT DO NOTHING

-- name: lock
SELECT s.value FROM ragcache.state s
 WHERE s.tenant = %(tenant)s AND s.kind = %(kind)s AND s.key = %(key)s
   FOR UPDATE

-- name: replace
UPDATE ragcache.state s SET value = %(value)s::json, expire_at = %(expire_at)s
 WHERE s.tenant = %(tenant)s AND s.kind = %(kind)s AND s.key = %(key)s
