-- name: server
-- What server this is, and whether it has vectors.
SELECT current_setting('server_version_num')::int, current_setting('server_version'),
       (SELECT extversion FROM pg_extension WHERE extname = 'vector'),
       to_regtype('vector') IS NOT NULL

-- name: migrated
-- Whether the schema is there at all.
SELECT to_regclass('ragcache.migration') IS NOT NULL

-- name: role
-- Who we are, and whether that role could see more than one tenant.
SELECT r.rolname, r.rolsuper, r.rolbypassrls,
       EXISTS (SELECT FROM pg_class c
                WHERE c.relnamespace = 'ragcache'::regnamespace AND c.relkind IN ('r', 'p')
                  AND pg_has_role(r.oid, c.relowner, 'MEMBER'))
  FROM pg_roles r WHERE r.rolname = current_user

-- name: open_tables
-- Tables (and partitions, wherever they are) whose rows are not guarded as they must be.
WITH RECURSIVE guarded AS (
    SELECT c.oid FROM pg_class c
     WHERE c.relnamespace = 'ragcache'::regnamespace AND c.relkind IN ('r', 'p')
       AND c.relname <> 'migration'
    UNION
    SELECT i.inhrelid FROM pg_inherits i JOIN guarded g ON g.oid = i.inhparent
     WHERE EXISTS (SELECT FROM pg_class c WHERE c.oid = i.inhrelid AND c.relkind IN ('r', 'p'))
)
SELECT format('%%I.%%I', c.relnamespace::regnamespace::text, c.relname),
       CASE WHEN NOT c.relrowsecurity THEN 'row-level security is off'
            WHEN NOT c.relforcerowsecurity THEN 'row-level security is not forced on its owner'
            ELSE 'no restrictive tenant policy for everybody and every command' END
  FROM guarded g JOIN pg_class c ON c.oid = g.oid
 WHERE NOT c.relrowsecurity OR NOT c.relforcerowsecurity
    OR NOT EXISTS (
        SELECT FROM pg_policy p
         WHERE p.polrelid = c.oid AND NOT p.polpermissive AND p.polcmd = '*'
           AND p.polroles = '{0}'::oid[]
           AND pg_get_expr(p.polqual, p.polrelid) LIKE
               '%%(tenant = NULLIF(current_setting(''ragcache.tenant''::text, true), ''''::text))%%'
           AND (p.polwithcheck IS NULL OR pg_get_expr(p.polwithcheck, p.polrelid) LIKE
               '%%(tenant = NULLIF(current_setting(''ragcache.tenant''::text, true), ''''::text))%%')
           AND (pg_get_expr(p.polqual, p.polrelid) NOT LIKE '%% OR %%'
                OR c.relname = 'namespace'))
 ORDER BY 1

-- name: open_keys
-- Unique keys that do not begin with the tenant: a conflict would tell of another tenant's row.
SELECT i.indexrelid::regclass::text
  FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid
 WHERE c.relnamespace = 'ragcache'::regnamespace AND c.relname <> 'migration'
   AND (i.indisunique OR i.indisprimary)
   AND NOT EXISTS (SELECT FROM pg_attribute a
                    WHERE a.attrelid = c.oid AND a.attnum = i.indkey[0] AND a.attname = 'tenant')
 ORDER BY 1

-- name: open_views
-- Views that read the tables with their owner's rights.
SELECT DISTINCT v.oid::regclass::text
  FROM pg_depend d
  JOIN pg_rewrite w ON w.oid = d.objid AND d.classid = 'pg_rewrite'::regclass
  JOIN pg_class v ON v.oid = w.ev_class AND v.relkind IN ('v', 'm')
  JOIN pg_class t ON t.oid = d.refobjid AND t.relnamespace = 'ragcache'::regnamespace
 WHERE t.relkind IN ('r', 'p') AND t.relname <> 'migration'
   AND has_table_privilege(current_user, v.oid, 'SELECT')
   AND NOT coalesce('security_invoker=true' = ANY(v.reloptions)
                    OR 'security_invoker=on' = ANY(v.reloptions), false)
 ORDER BY 1

-- name: open_functions
-- Functions of the schema that run as a role no policy holds back, or with an open search path.
SELECT p.oid::regprocedure::text
  FROM pg_proc p JOIN pg_roles r ON r.oid = p.proowner
 WHERE p.pronamespace = 'ragcache'::regnamespace AND p.prosecdef
   AND (r.rolsuper OR r.rolbypassrls
        OR NOT EXISTS (SELECT FROM unnest(p.proconfig) AS s WHERE s LIKE 'search_path=%%'))
 ORDER BY 1

-- name: wide_grants
-- Rights of this role that row-level security does not hold back.
SELECT 'ragcache.' || c.relname, right_name
  FROM pg_class c, unnest(ARRAY['TRUNCATE', 'REFERENCES', 'TRIGGER']) AS right_name
 WHERE c.relnamespace = 'ragcache'::regnamespace AND c.relkind IN ('r', 'p')
   AND has_table_privilege(current_user, c.oid, right_name)
 ORDER BY 1, 2

-- name: visible_entries
-- Whether any row can be seen.
SELECT EXISTS (SELECT FROM ragcache.entry) OR EXISTS (SELECT FROM ragcache.document)
    OR EXISTS (SELECT FROM ragcache.namespace) OR EXISTS (SELECT FROM ragcache.lineage)
    OR EXISTS (SELECT FROM ragcache.lineage_name) OR EXISTS (SELECT FROM ragcache.entry_use)

-- name: left_behind
-- What a transaction that named a tenant has left on the connection.
SELECT coalesce(current_setting('ragcache.tenant', true), '')
