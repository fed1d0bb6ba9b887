-- A conversation is kept byte for byte; jsonb would reorder its keys, and cannot hold a NUL.
ALTER TABLE ragcache.state ALTER COLUMN value TYPE json USING value::json;
