-- What a trigger on the team's own document table calls: an invalidation inside their transaction.
--
-- It runs as the owner of the schema, who is held to the policies like everybody, and it can only
-- make entries unservable. The tenant that was set before is put back.

CREATE FUNCTION ragcache.documents_changed(of_tenant text, names text[]) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    before text := coalesce(current_setting('ragcache.tenant', true), '');
    place  text := ragcache.storable(of_tenant);
BEGIN
    IF coalesce(place, '') = '' THEN
        RETURN;
    END IF;
    PERFORM set_config('ragcache.tenant', place, true);
    INSERT INTO ragcache.document AS d (tenant, name, number)
    SELECT place, changed.name, nextval('ragcache.change_number')
      FROM (SELECT DISTINCT ragcache.storable(name) AS name
              FROM unnest(names) AS name WHERE name IS NOT NULL ORDER BY 1) AS changed
    ON CONFLICT (tenant, name) DO UPDATE
       SET number = excluded.number, changed_at = clock_timestamp();
    PERFORM ragcache.tell('change', place);
    PERFORM set_config('ragcache.tenant', before, true);
END
$$;

CREATE FUNCTION ragcache.tenant_changed(of_tenant text) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    before text := coalesce(current_setting('ragcache.tenant', true), '');
    place  text := ragcache.storable(of_tenant);
BEGIN
    IF coalesce(place, '') = '' THEN
        RETURN;
    END IF;
    PERFORM set_config('ragcache.tenant', place, true);
    UPDATE ragcache.namespace n SET epoch = n.epoch + 1 WHERE n.tenant = place;
    PERFORM ragcache.tell('epoch', place);
    PERFORM set_config('ragcache.tenant', before, true);
END
$$;

-- A key can hold 1,000 bytes here; what is longer goes by its hash, as the store does it.
CREATE FUNCTION ragcache.storable(value text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN octet_length(value) > 1000
                THEN 'sha256:' || encode(sha256(convert_to(value, 'UTF8')), 'hex')
                ELSE value END;

-- The payload holds a digest: every role that may connect can listen.
CREATE FUNCTION ragcache.tell(kind text, place text) RETURNS void
    LANGUAGE sql
    RETURN pg_notify('ragcache', json_build_object(
        'kind', kind, 'tenant', encode(sha256(convert_to(place, 'UTF8')), 'hex'))::text);

REVOKE ALL ON FUNCTION ragcache.documents_changed(text, text[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION ragcache.tenant_changed(text) FROM PUBLIC;
REVOKE ALL ON FUNCTION ragcache.storable(text) FROM PUBLIC;
REVOKE ALL ON FUNCTION ragcache.tell(text, text) FROM PUBLIC;
