-- The schema as it stands: what `ragcache migrate --sql` prints for a database that has none of it.
-- A test compares the two. Applied as the administrator who ran `ragcache init`.

-- migration 0001_answers
BEGIN;
SET LOCAL ROLE ragcache_owner;
SELECT set_config('search_path', 'pg_catalog, ragcache, ' || quote_ident(n.nspname), true)
  FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
 WHERE e.extname = 'vector';
SET LOCAL lock_timeout = '2000ms';
CREATE TABLE IF NOT EXISTS ragcache.migration (
    number      integer PRIMARY KEY,
    name        text NOT NULL,
    checksum    text NOT NULL,
    applied_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- The answer cache: entries, the documents they came from, and what invalidates them.
--
-- Every table begins its keys with the tenant, forces row-level security on its owner too, and
-- carries one restrictive guard, so that a permissive policy added later cannot open it. After a
-- transaction that named a tenant the setting is '', not NULL: hence the nullif in each guard.

-- Change numbers never repeat, so that one taken before a clean-up cannot match one after it.
CREATE SEQUENCE ragcache.change_number AS bigint;

CREATE TABLE ragcache.namespace (
    tenant     text COLLATE "C" NOT NULL CHECK (tenant <> ''),
    namespace  text COLLATE "C" NOT NULL,
    epoch      bigint NOT NULL DEFAULT 0,
    quota      bigint CHECK (quota >= 0),
    PRIMARY KEY (tenant, namespace)
);
COMMENT ON TABLE ragcache.namespace IS
    'One row for each namespace of each tenant: its epoch, and its own quota of entries.';

CREATE TABLE ragcache.document (
    tenant  text COLLATE "C" NOT NULL CHECK (tenant <> ''),
    name    text COLLATE "C" NOT NULL,
    number  bigint NOT NULL DEFAULT 0,
    changed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (tenant, name)
);
COMMENT ON TABLE ragcache.document IS
    'The change number of each document, under each of its names; 0 where it never changed.';

CREATE TABLE ragcache.entry (
    tenant      text COLLATE "C" NOT NULL CHECK (tenant <> ''),
    id          text COLLATE "C" NOT NULL,
    principal   text COLLATE "C" NOT NULL,
    sharing     text COLLATE "C" NOT NULL,
    namespace   text COLLATE "C" NOT NULL,
    partition   text COLLATE "C" NOT NULL,
    access      text[] COLLATE "C" NOT NULL DEFAULT '{}',
    needs       text[] COLLATE "C" NOT NULL DEFAULT '{}',
    exact_key   text COLLATE "C" NOT NULL,
    normal_key  text COLLATE "C" NOT NULL,
    question    text NOT NULL,
    answer      json NOT NULL,
    reading     json,
    state       text COLLATE "C" NOT NULL CHECK (state IN ('live', 'quarantined', 'deleted')),
    reason      text NOT NULL DEFAULT '',
    created_at  timestamptz NOT NULL,
    expire_at   timestamptz NOT NULL,
    changed_at  timestamptz NOT NULL,
    epoch       bigint NOT NULL,
    version     text NOT NULL DEFAULT '',
    model       text NOT NULL DEFAULT '',
    embedder    text COLLATE "C" NOT NULL DEFAULT '',
    embedding   vector,
    embedding_half halfvec,
    dimensions  integer GENERATED ALWAYS AS
        (coalesce(vector_dims(embedding), vector_dims(embedding_half))) STORED,
    kid         text NOT NULL DEFAULT '',
    signature   bytea NOT NULL DEFAULT '',
    PRIMARY KEY (tenant, id),
    CHECK (embedding IS NULL OR embedding_half IS NULL)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);
COMMENT ON TABLE ragcache.entry IS
    'Stored answers. `needs` is the union of the access tags of the documents it came from; '
    '`reason` says why an entry was taken out of service, empty while it merely waits.';

-- Out of line, the vectors would make an exact scan ten times slower (48 against 3.5 ms).
ALTER TABLE ragcache.entry ALTER COLUMN embedding SET STORAGE PLAIN;
ALTER TABLE ragcache.entry ALTER COLUMN embedding_half SET STORAGE PLAIN;

-- One answer for each key and writer; a newer one takes its place.
CREATE UNIQUE INDEX entry_exact ON ragcache.entry (tenant, exact_key, principal);
CREATE INDEX entry_normal ON ragcache.entry (tenant, normal_key);
CREATE INDEX entry_partition ON ragcache.entry (tenant, partition, embedder);
CREATE INDEX entry_expiry ON ragcache.entry (tenant, namespace, expire_at);

CREATE TABLE ragcache.lineage (
    tenant   text COLLATE "C" NOT NULL CHECK (tenant <> ''),
    entry    text COLLATE "C" NOT NULL,
    position integer NOT NULL,
    names    text[] COLLATE "C" NOT NULL,
    content  text COLLATE "C" NOT NULL,
    raw      text COLLATE "C" NOT NULL,
    rank     integer NOT NULL,
    cited    boolean NOT NULL,
    access   text[] COLLATE "C" NOT NULL DEFAULT '{}',
    PRIMARY KEY (tenant, entry, position),
    FOREIGN KEY (tenant, entry) REFERENCES ragcache.entry (tenant, id) ON DELETE CASCADE
);
COMMENT ON TABLE ragcache.lineage IS 'The documents an answer came from, as they were then.';

CREATE TABLE ragcache.lineage_name (
    tenant  text COLLATE "C" NOT NULL CHECK (tenant <> ''),
    entry   text COLLATE "C" NOT NULL,
    name    text COLLATE "C" NOT NULL,
    number  bigint NOT NULL,
    PRIMARY KEY (tenant, entry, name),
    FOREIGN KEY (tenant, entry) REFERENCES ragcache.entry (tenant, id) ON DELETE CASCADE
);
COMMENT ON TABLE ragcache.lineage_name IS
    'Names under which a change kills an entry, with the change number it was built from.';
CREATE INDEX lineage_name_name ON ragcache.lineage_name (tenant, name);

-- Hits are noted apart, so that a hit never rewrites a row with a vector in it.
CREATE TABLE ragcache.entry_use (
    tenant       text COLLATE "C" NOT NULL CHECK (tenant <> ''),
    entry        text COLLATE "C" NOT NULL,
    last_hit_at  timestamptz NOT NULL,
    hits         bigint NOT NULL DEFAULT 1,
    PRIMARY KEY (tenant, entry),
    FOREIGN KEY (tenant, entry) REFERENCES ragcache.entry (tenant, id) ON DELETE CASCADE
) WITH (fillfactor = 70);
COMMENT ON TABLE ragcache.entry_use IS 'When an entry was last served, and how often.';

CREATE TABLE ragcache.audit (
    tenant   text COLLATE "C" NOT NULL CHECK (tenant <> ''),
    id       uuid NOT NULL DEFAULT gen_random_uuid(),
    at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    action   text NOT NULL,
    subject  text NOT NULL,
    reason   text NOT NULL DEFAULT '',
    entries  bigint NOT NULL DEFAULT 0,
    actor    text NOT NULL DEFAULT session_user,
    PRIMARY KEY (tenant, id)
);
COMMENT ON TABLE ragcache.audit IS 'What was taken out of service, by whom and why. Append only.';
CREATE INDEX audit_at ON ragcache.audit (tenant, at);

-- Row-level security: nobody sees a row of a tenant that the transaction did not name. The ops
-- role is held to it too; it may only list which tenants there are, to name them one by one.
ALTER TABLE ragcache.namespace    ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
ALTER TABLE ragcache.document     ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
ALTER TABLE ragcache.entry        ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
ALTER TABLE ragcache.lineage      ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
ALTER TABLE ragcache.lineage_name ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
ALTER TABLE ragcache.entry_use    ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
ALTER TABLE ragcache.audit        ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

CREATE POLICY tenant_guard ON ragcache.namespace AS RESTRICTIVE
    USING (tenant = nullif(current_setting('ragcache.tenant', true), '')
           OR current_user = 'ragcache_ops')
    WITH CHECK (tenant = nullif(current_setting('ragcache.tenant', true), ''));
CREATE POLICY tenant_guard ON ragcache.document AS RESTRICTIVE
    USING (tenant = nullif(current_setting('ragcache.tenant', true), ''));
CREATE POLICY tenant_guard ON ragcache.entry AS RESTRICTIVE
    USING (tenant = nullif(current_setting('ragcache.tenant', true), ''));
CREATE POLICY tenant_guard ON ragcache.lineage AS RESTRICTIVE
    USING (tenant = nullif(current_setting('ragcache.tenant', true), ''));
CREATE POLICY tenant_guard ON ragcache.lineage_name AS RESTRICTIVE
    USING (tenant = nullif(current_setting('ragcache.tenant', true), ''));
CREATE POLICY tenant_guard ON ragcache.entry_use AS RESTRICTIVE
    USING (tenant = nullif(current_setting('ragcache.tenant', true), ''));
CREATE POLICY tenant_guard ON ragcache.audit AS RESTRICTIVE
    USING (tenant = nullif(current_setting('ragcache.tenant', true), ''));

CREATE POLICY tenant_rows ON ragcache.namespace
    TO ragcache_app, ragcache_ops, ragcache_owner USING (true);
CREATE POLICY tenant_rows ON ragcache.document
    TO ragcache_app, ragcache_ops, ragcache_owner USING (true);
CREATE POLICY tenant_rows ON ragcache.entry
    TO ragcache_app, ragcache_ops, ragcache_owner USING (true);
CREATE POLICY tenant_rows ON ragcache.lineage
    TO ragcache_app, ragcache_ops, ragcache_owner USING (true);
CREATE POLICY tenant_rows ON ragcache.lineage_name
    TO ragcache_app, ragcache_ops, ragcache_owner USING (true);
CREATE POLICY tenant_rows ON ragcache.entry_use
    TO ragcache_app, ragcache_ops, ragcache_owner USING (true);
CREATE POLICY tenant_rows ON ragcache.audit
    TO ragcache_app, ragcache_ops, ragcache_owner USING (true);

REVOKE ALL ON ALL TABLES IN SCHEMA ragcache FROM PUBLIC;
GRANT SELECT, INSERT, UPDATE, DELETE
    ON ragcache.namespace, ragcache.document, ragcache.entry, ragcache.lineage,
       ragcache.lineage_name, ragcache.entry_use
    TO ragcache_app, ragcache_ops;
GRANT INSERT ON ragcache.audit TO ragcache_app;
GRANT SELECT, INSERT ON ragcache.audit TO ragcache_ops;
GRANT USAGE ON SEQUENCE ragcache.change_number TO ragcache_app, ragcache_ops;
GRANT SELECT ON ragcache.migration TO ragcache_app, ragcache_ops;

INSERT INTO ragcache.migration (number, name, checksum)
VALUES (1, 'answers', 'a17c45b0c2a62d9e97e53b7405469fd689bc484bb875ff07400de192d77d7876');
COMMIT;

-- migration 0002_watching
BEGIN;
SET LOCAL ROLE ragcache_owner;
SELECT set_config('search_path', 'pg_catalog, ragcache, ' || quote_ident(n.nspname), true)
  FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
 WHERE e.extname = 'vector';
SET LOCAL lock_timeout = '2000ms';
CREATE TABLE IF NOT EXISTS ragcache.migration (
    number      integer PRIMARY KEY,
    name        text NOT NULL,
    checksum    text NOT NULL,
    applied_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);

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

INSERT INTO ragcache.migration (number, name, checksum)
VALUES (2, 'watching', 'ef185bcd67fae2716da45f7008924f59723c97894b6f0908d80955eb45f56ff5');
COMMIT;

-- migration 0003_traffic
BEGIN;
SET LOCAL ROLE ragcache_owner;
SELECT set_config('search_path', 'pg_catalog, ragcache, ' || quote_ident(n.nspname), true)
  FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
 WHERE e.extname = 'vector';
SET LOCAL lock_timeout = '2000ms';
CREATE TABLE IF NOT EXISTS ragcache.migration (
    number      integer PRIMARY KEY,
    name        text NOT NULL,
    checksum    text NOT NULL,
    applied_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- What telemetry keeps: the latest requests of each tenant, and sums for each hour.
--
-- Figures, reasons, hashes and names of documents; what was asked and answered only where the
-- operator asked for contents.

CREATE TABLE ragcache.request (
    tenant       text COLLATE "C" NOT NULL CHECK (tenant <> ''),
    id           text COLLATE "C" NOT NULL,
    at           timestamptz NOT NULL,
    namespace    text COLLATE "C" NOT NULL,
    partition    text COLLATE "C" NOT NULL,
    version      text NOT NULL DEFAULT '',
    provider     text NOT NULL DEFAULT '',
    model        text NOT NULL DEFAULT '',
    status       text NOT NULL,
    reason       text NOT NULL DEFAULT '',
    entry        text COLLATE "C" NOT NULL DEFAULT '',
    similarity   double precision,
    nearest      double precision,
    certified    boolean NOT NULL DEFAULT true,
    collapsed    boolean NOT NULL DEFAULT false,
    stored       boolean,
    store_reason text NOT NULL DEFAULT '',
    error        text NOT NULL DEFAULT '',
    ttft_s       double precision,
    input        bigint,
    cached       bigint,
    written      bigint,
    output       bigint,
    predicted    bigint,
    cause        text NOT NULL DEFAULT '',
    saved_input  bigint,
    saved_output bigint,
    cost         double precision,
    uncached     double precision,
    seconds      jsonb NOT NULL DEFAULT '{}',
    head         text NOT NULL DEFAULT '',
    blocks       jsonb NOT NULL DEFAULT '[]',
    notes        jsonb NOT NULL DEFAULT '[]',
    degraded     jsonb NOT NULL DEFAULT '[]',
    principal    text COLLATE "C" NOT NULL DEFAULT '',
    question     text NOT NULL DEFAULT '',
    answer       text NOT NULL DEFAULT '',
    agreed       boolean,
    judged_by    text NOT NULL DEFAULT '',
    PRIMARY KEY (tenant, id, at)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);
COMMENT ON TABLE ragcache.request IS
    'The latest requests of each tenant, a bounded number of them. `agreed` is null until a '
    'semantic hit was judged; principal, question and answer are empty unless contents are kept.';
CREATE INDEX request_at ON ragcache.request (tenant, at);
CREATE INDEX request_entry ON ragcache.request (tenant, entry, at) WHERE entry <> '';

CREATE TABLE ragcache.traffic (
    tenant       text COLLATE "C" NOT NULL CHECK (tenant <> ''),
    hour         timestamptz NOT NULL,
    namespace    text COLLATE "C" NOT NULL,
    model        text COLLATE "C" NOT NULL,
    version      text COLLATE "C" NOT NULL,
    requests     bigint NOT NULL DEFAULT 0,
    hits_exact   bigint NOT NULL DEFAULT 0,
    hits_semantic bigint NOT NULL DEFAULT 0,
    stale        bigint NOT NULL DEFAULT 0,
    bypassed     bigint NOT NULL DEFAULT 0,
    collapsed    bigint NOT NULL DEFAULT 0,
    calls        bigint NOT NULL DEFAULT 0,
    errors       bigint NOT NULL DEFAULT 0,
    input        bigint NOT NULL DEFAULT 0,
    cached       bigint NOT NULL DEFAULT 0,
    output       bigint NOT NULL DEFAULT 0,
    predicted    bigint NOT NULL DEFAULT 0,
    saved_input  bigint NOT NULL DEFAULT 0,
    saved_output bigint NOT NULL DEFAULT 0,
    spent        double precision NOT NULL DEFAULT 0,
    uncached     double precision NOT NULL DEFAULT 0,
    spared       double precision NOT NULL DEFAULT 0,
    unpriced     bigint NOT NULL DEFAULT 0,
    judged       bigint NOT NULL DEFAULT 0,
    wrong        bigint NOT NULL DEFAULT 0,
    reported     bigint NOT NULL DEFAULT 0,
    lost         double precision NOT NULL DEFAULT 0,
    verification double precision NOT NULL DEFAULT 0,
    called_ttft_s double precision NOT NULL DEFAULT 0,
    called_ttfts bigint NOT NULL DEFAULT 0,
    hit_ttft_s   double precision NOT NULL DEFAULT 0,
    hit_ttfts    bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, hour, namespace, model, version)
) WITH (fillfactor = 70);
COMMENT ON TABLE ragcache.traffic IS
    'Sums over the requests of an hour. `input` and `cached` count calls whose cached tokens are '
    'known; money counts priced requests, `unpriced` the others. `judged` and `wrong` count hits that '
    'were verified at random, `reported` those that users said were bad.';

ALTER TABLE ragcache.request ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
ALTER TABLE ragcache.traffic ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;

CREATE POLICY tenant_guard ON ragcache.request AS RESTRICTIVE
    USING (tenant = nullif(current_setting('ragcache.tenant', true), ''));
CREATE POLICY tenant_guard ON ragcache.traffic AS RESTRICTIVE
    USING (tenant = nullif(current_setting('ragcache.tenant', true), ''));
CREATE POLICY tenant_rows ON ragcache.request
    TO ragcache_app, ragcache_ops, ragcache_owner USING (true);
CREATE POLICY tenant_rows ON ragcache.traffic
    TO ragcache_app, ragcache_ops, ragcache_owner USING (true);

REVOKE ALL ON ragcache.request, ragcache.traffic FROM PUBLIC;
GRANT SELECT, INSERT, UPDATE, DELETE ON ragcache.request, ragcache.traffic
    TO ragcache_app, ragcache_ops;

INSERT INTO ragcache.migration (number, name, checksum)
VALUES (3, 'traffic', '43ec234d3091209db8a21932cb6e8915d99dfb3589dbfa557f2d5a8d77014f4a');
COMMIT;

-- migration 0004_state
BEGIN;
SET LOCAL ROLE ragcache_owner;
SELECT set_config('search_path', 'pg_catalog, ragcache, ' || quote_ident(n.nspname), true)
  FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
 WHERE e.extname = 'vector';
SET LOCAL lock_timeout = '2000ms';
CREATE TABLE IF NOT EXISTS ragcache.migration (
    number      integer PRIMARY KEY,
    name        text NOT NULL,
    checksum    text NOT NULL,
    applied_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- What a deployment remembers between requests: conversations as they were sent, and what the
-- guard has learned.

CREATE TABLE ragcache.state (
    tenant    text COLLATE "C" NOT NULL CHECK (tenant <> ''),
    kind      text COLLATE "C" NOT NULL,
    key       text COLLATE "C" NOT NULL,
    principal text COLLATE "C" NOT NULL DEFAULT '',
    value     jsonb NOT NULL,
    expire_at timestamptz NOT NULL,
    PRIMARY KEY (tenant, kind, key)
) WITH (fillfactor = 70);
COMMENT ON TABLE ragcache.state IS
    'Kind "conversation": by session, as it was sent. Kind "guard": what judged hits have shown; '
    'a row of the whole deployment stands under the tenant "ragcache:deployment".';
CREATE INDEX state_expire ON ragcache.state (tenant, expire_at);
CREATE INDEX state_principal ON ragcache.state (tenant, principal) WHERE principal <> '';

ALTER TABLE ragcache.state ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY tenant_guard ON ragcache.state AS RESTRICTIVE
    USING (tenant = nullif(current_setting('ragcache.tenant', true), ''));
CREATE POLICY tenant_rows ON ragcache.state
    TO ragcache_app, ragcache_ops, ragcache_owner USING (true);
REVOKE ALL ON ragcache.state FROM PUBLIC;
GRANT SELECT, INSERT, UPDATE, DELETE ON ragcache.state TO ragcache_app, ragcache_ops;

INSERT INTO ragcache.migration (number, name, checksum)
VALUES (4, 'state', '9b436730af4537471784d04c1552307e6eeffa148599e4da07c279d1ec60f657');
COMMIT;

-- migration 0005_state_verbatim
BEGIN;
SET LOCAL ROLE ragcache_owner;
SELECT set_config('search_path', 'pg_catalog, ragcache, ' || quote_ident(n.nspname), true)
  FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace
 WHERE e.extname = 'vector';
SET LOCAL lock_timeout = '2000ms';
CREATE TABLE IF NOT EXISTS ragcache.migration (
    number      integer PRIMARY KEY,
    name        text NOT NULL,
    checksum    text NOT NULL,
    applied_at  timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- A conversation is kept byte for byte; jsonb would reorder its keys, and cannot hold a NUL.
ALTER TABLE ragcache.state ALTER COLUMN value TYPE json USING value::json;

INSERT INTO ragcache.migration (number, name, checksum)
VALUES (5, 'state_verbatim', '55661b9ce2a11a1231894d61544f7776508cc3656917791a743e3bea1270ab8a');
COMMIT;
