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
