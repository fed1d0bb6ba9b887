-- name: columns
-- The columns of the table that is to be watched.
SELECT a.attname FROM pg_attribute a
 WHERE a.attrelid = to_regclass(%(table)s) AND a.attnum > 0 AND NOT a.attisdropped

-- name: table
-- Its full name, and who owns it.
SELECT c.oid::bigint, n.nspname, c.relname, pg_has_role(current_user, c.relowner, 'USAGE')
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE c.oid = to_regclass(%(table)s) AND c.relkind IN ('r', 'p')

-- name: rows_function
-- Runs once for each statement: tells of the rows that are gone, or hold another text now.
CREATE OR REPLACE FUNCTION ragcache.{function}() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $watch$
DECLARE
    gone record;
BEGIN
    FOR gone IN
        SELECT o.tenant, array_agg(DISTINCT name) AS names
          FROM (SELECT ({tenant})::text AS tenant, ({id})::text AS id, ({text})::text AS text
                  FROM old_rows {except_unchanged}) AS o,
               unnest(ARRAY[o.id, 'sha256:' || encode(sha256(convert_to(o.text, 'UTF8')), 'hex')])
                   AS name
         GROUP BY o.tenant
    LOOP
        PERFORM ragcache.documents_changed(gone.tenant, gone.names);
    END LOOP;
    RETURN NULL;
END
$watch$

-- name: except_unchanged
-- Rows written again with the same text (a new embedding, other metadata) are no change.
EXCEPT ALL
                SELECT ({tenant})::text, ({id})::text, ({text})::text FROM new_rows

-- name: truncate_function
-- A truncate takes every row: whatever was answered from the table, for each tenant in it.
CREATE OR REPLACE FUNCTION ragcache.{function}() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $watch$
BEGIN
    PERFORM ragcache.tenant_changed(w.tenant)
       FROM (SELECT DISTINCT ({tenant})::text AS tenant FROM {table}) AS w;
    RETURN NULL;
END
$watch$

-- name: delete_trigger
CREATE OR REPLACE TRIGGER ragcache_deleted AFTER DELETE ON {table}
    REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT EXECUTE FUNCTION ragcache.{function}()

-- name: update_trigger
CREATE OR REPLACE TRIGGER ragcache_updated AFTER UPDATE ON {table}
    REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows
    FOR EACH STATEMENT EXECUTE FUNCTION ragcache.{function}()

-- name: truncate_trigger
CREATE OR REPLACE TRIGGER ragcache_truncated BEFORE TRUNCATE ON {table}
    FOR EACH STATEMENT EXECUTE FUNCTION ragcache.{function}()

-- name: drop_triggers
DROP TRIGGER IF EXISTS ragcache_deleted ON {table};
DROP TRIGGER IF EXISTS ragcache_updated ON {table};
DROP TRIGGER IF EXISTS ragcache_truncated ON {table}

-- name: drop_functions
DROP FUNCTION IF EXISTS ragcache.{deleted}();
DROP FUNCTION IF EXISTS ragcache.{updated}();
DROP FUNCTION IF EXISTS ragcache.{truncated}()
