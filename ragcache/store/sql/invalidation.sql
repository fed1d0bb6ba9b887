-- name: change_documents
-- New change numbers, in one order, so that no two changes wait crosswise.
INSERT INTO ragcache.document AS d (tenant, name, number)
SELECT %(tenant)s, name, nextval('ragcache.change_number')
  FROM (SELECT DISTINCT name FROM unnest(%(names)s::text[]) AS name ORDER BY name) AS changed
ON CONFLICT (tenant, name) DO UPDATE
   SET number = excluded.number, changed_at = clock_timestamp()

-- name: count_killed
-- How many entries could still be served and no longer can.
SELECT count(*) FROM ragcache.entry e
 WHERE e.tenant = %(tenant)s AND e.state <> 'deleted'
   AND e.id IN (SELECT l.entry FROM ragcache.lineage_name l
                 WHERE l.tenant = %(tenant)s AND l.name = ANY(%(names)s::text[]))

-- name: bump_epoch
-- A new epoch: no entry stored under an older one is served again.
INSERT INTO ragcache.namespace AS n (tenant, namespace, epoch)
VALUES (%(tenant)s, %(namespace)s, 1)
ON CONFLICT (tenant, namespace) DO UPDATE SET epoch = n.epoch + 1
RETURNING epoch

-- name: bump_all_epochs
-- Answers on their way into any namespace of the tenant come too late.
UPDATE ragcache.namespace n SET epoch = n.epoch + 1 WHERE n.tenant = %(tenant)s

-- name: quarantine
-- Out of service, also for its writer, until somebody has looked.
UPDATE ragcache.entry e SET state = 'quarantined', reason = %(reason)s, changed_at = clock_timestamp()
 WHERE e.tenant = %(tenant)s AND e.id = %(id)s AND e.state <> 'deleted'

-- name: audit
-- Who took what out of service, and why.
INSERT INTO ragcache.audit (tenant, action, subject, reason, entries)
VALUES (%(tenant)s, %(action)s, %(subject)s, %(reason)s, %(entries)s)

-- name: count_tenant
-- How many entries a purge of the tenant would remove.
SELECT count(*) FROM ragcache.entry e WHERE e.tenant = %(tenant)s

-- name: purge_entries
-- Every entry of the tenant, with its lineage and its uses.
DELETE FROM ragcache.entry e WHERE e.tenant = %(tenant)s

-- name: purge_documents
-- Change numbers are worth nothing without entries; they never repeat.
DELETE FROM ragcache.document d WHERE d.tenant = %(tenant)s

-- name: notify
-- Tell other processes. The payload names no tenant in clear.
SELECT pg_notify('ragcache', %(payload)s)
