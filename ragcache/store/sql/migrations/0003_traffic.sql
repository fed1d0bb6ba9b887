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
