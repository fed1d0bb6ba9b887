-- name: ensure_namespaces
-- A tenant without a stored answer is listed too.
INSERT INTO ragcache.namespace (tenant, namespace)
SELECT DISTINCT %(tenant)s, r.namespace
  FROM jsonb_to_recordset(%(rows)s::jsonb) AS r (namespace text)
ON CONFLICT DO NOTHING

-- name: write_requests
-- Keep the requests and add them to the sums of their hours, in one go.
WITH given AS (
    SELECT *, %(tenant)s::text COLLATE "C" AS tenant,
           status IN ('hit_exact', 'hit_semantic') AS hit,
           cost IS NOT NULL AND uncached IS NOT NULL AS priced,
           seconds ? 'target' AS called
      FROM jsonb_to_recordset(%(rows)s::jsonb) AS r (
           id text, at timestamptz, namespace text, partition text, version text, provider text,
           model text, status text, reason text, entry text, similarity float8, nearest float8,
           certified boolean, collapsed boolean, stored boolean, store_reason text, error text,
           ttft_s float8, input bigint, cached bigint, written bigint, output bigint,
           predicted bigint, cause text, saved_input bigint, saved_output bigint, cost float8,
           uncached float8, seconds jsonb, head text, blocks jsonb, notes jsonb, degraded jsonb,
           principal text, question text, answer text)
), kept AS (
    INSERT INTO ragcache.request (
           tenant, id, at, namespace, partition, version, provider, model, status, reason, entry,
           similarity, nearest, certified, collapsed, stored, store_reason, error, ttft_s, input,
           cached, written, output, predicted, cause, saved_input, saved_output, cost, uncached,
           seconds, head, blocks, notes, degraded, principal, question, answer)
    SELECT tenant, id, at, namespace, partition, version, provider, model, status, reason, entry,
           similarity, nearest, certified, collapsed, stored, store_reason, error, ttft_s, input,
           cached, written, output, predicted, cause, saved_input, saved_output, cost, uncached,
           seconds, head, blocks, notes, degraded, principal, question, answer
      FROM given
    ON CONFLICT DO NOTHING
)
INSERT INTO ragcache.traffic AS t (
       tenant, hour, namespace, model, version, requests, hits_exact, hits_semantic, stale,
       bypassed, collapsed, calls, errors, input, cached, output, predicted, saved_input,
       saved_output, spent, uncached, spared, unpriced, called_ttft_s, called_ttfts, hit_ttft_s,
       hit_ttfts)
SELECT tenant, date_trunc('hour', at, 'UTC'), namespace, model, version,
       count(*),
       count(*) FILTER (WHERE status = 'hit_exact'),
       count(*) FILTER (WHERE status = 'hit_semantic'),
       count(*) FILTER (WHERE status = 'stale'),
       count(*) FILTER (WHERE status = 'bypass'),
       count(*) FILTER (WHERE collapsed),
       count(*) FILTER (WHERE called),
       count(*) FILTER (WHERE error <> ''),
       coalesce(sum(input) FILTER (WHERE called AND cached IS NOT NULL), 0),
       coalesce(sum(cached) FILTER (WHERE called AND input IS NOT NULL), 0),
       coalesce(sum(output) FILTER (WHERE called), 0),
       coalesce(sum(predicted) FILTER (WHERE called AND cached IS NOT NULL), 0),
       coalesce(sum(saved_input), 0),
       coalesce(sum(saved_output), 0),
       coalesce(sum(cost) FILTER (WHERE priced), 0),
       coalesce(sum(uncached) FILTER (WHERE priced AND called), 0),
       coalesce(sum(uncached) FILTER (WHERE priced AND NOT called), 0),
       count(*) FILTER (WHERE NOT priced AND (called OR hit OR collapsed)),
       coalesce(sum(ttft_s) FILTER (WHERE called), 0),
       count(ttft_s) FILTER (WHERE called),
       coalesce(sum(ttft_s) FILTER (WHERE hit), 0),
       count(ttft_s) FILTER (WHERE hit)
  FROM given
 GROUP BY 1, 2, 3, 4, 5
 ORDER BY 1, 2, 3, 4, 5
ON CONFLICT (tenant, hour, namespace, model, version) DO UPDATE SET
       requests = t.requests + excluded.requests,
       hits_exact = t.hits_exact + excluded.hits_exact,
       hits_semantic = t.hits_semantic + excluded.hits_semantic,
       stale = t.stale + excluded.stale,
       bypassed = t.bypassed + excluded.bypassed,
       collapsed = t.collapsed + excluded.collapsed,
       calls = t.calls + excluded.calls,
       errors = t.errors + excluded.errors,
       input = t.input + excluded.input,
       cached = t.cached + excluded.cached,
       output = t.output + excluded.output,
       predicted = t.predicted + excluded.predicted,
       saved_input = t.saved_input + excluded.saved_input,
       saved_output = t.saved_output + excluded.saved_output,
       spent = t.spent + excluded.spent,
       uncached = t.uncached + excluded.uncached,
       spared = t.spared + excluded.spared,
       unpriced = t.unpriced + excluded.unpriced,
       called_ttft_s = t.called_ttft_s + excluded.called_ttft_s,
       called_ttfts = t.called_ttfts + excluded.called_ttfts,
       hit_ttft_s = t.hit_ttft_s + excluded.hit_ttft_s,
       hit_ttfts = t.hit_ttfts + excluded.hit_ttfts

-- name: judge_request
-- Mark the request that was judged: the one named, else the latest that was served the entry.
-- What it had saved is lost once.
WITH found AS (
    SELECT r.id, r.at FROM ragcache.request r
     WHERE r.tenant = %(tenant)s AND r.status = 'hit_semantic'
       AND (r.id = %(id)s OR r.entry = %(entry)s)
     ORDER BY r.id = %(id)s DESC, r.at DESC
     LIMIT 1
       FOR UPDATE
)
UPDATE ragcache.request r SET agreed = %(agreed)s, judged_by = %(by)s
  FROM found f, ragcache.request before
 WHERE r.tenant = %(tenant)s AND r.id = f.id AND r.at = f.at
   AND before.tenant = r.tenant AND before.id = r.id AND before.at = r.at
RETURNING r.at, r.namespace, r.model, r.version, coalesce(r.uncached - r.cost, 0), before.agreed

-- name: judge_hour
-- Add a judged hit to the sums: a bad one loses what it had saved.
INSERT INTO ragcache.traffic AS t
       (tenant, hour, namespace, model, version, judged, wrong, reported, lost, verification)
VALUES (%(tenant)s, date_trunc('hour', %(at)s::timestamptz, 'UTC'), %(namespace)s, %(model)s,
        %(version)s, %(judged)s, %(wrong)s, %(reported)s, %(lost)s, %(verification)s)
ON CONFLICT (tenant, hour, namespace, model, version) DO UPDATE SET
       judged = t.judged + excluded.judged,
       wrong = t.wrong + excluded.wrong,
       reported = t.reported + excluded.reported,
       lost = t.lost + excluded.lost,
       verification = t.verification + excluded.verification

-- name: trim_requests
-- Keep the latest.
DELETE FROM ragcache.request r
 WHERE r.tenant = %(tenant)s
   AND r.at < (SELECT k.at FROM ragcache.request k WHERE k.tenant = %(tenant)s
                ORDER BY k.at DESC OFFSET %(keep)s LIMIT 1)

-- name: sweep_requests
DELETE FROM ragcache.request r WHERE r.tenant = %(tenant)s AND r.at < %(before)s

-- name: sweep_traffic
DELETE FROM ragcache.traffic t WHERE t.tenant = %(tenant)s AND t.hour < %(before)s

-- name: hours
-- The sums of each hour since a moment.
SELECT to_jsonb(t.*) FROM ragcache.traffic t
 WHERE t.tenant = %(tenant)s AND t.hour >= %(since)s
 ORDER BY t.hour, t.namespace, t.model, t.version

-- name: recent
-- The latest requests since a moment, newest first.
SELECT to_jsonb(r.*) FROM ragcache.request r
 WHERE r.tenant = %(tenant)s AND r.at >= %(since)s
 ORDER BY r.at DESC LIMIT %(limit)s

-- name: one
-- Requests whose id begins like this, newest first.
SELECT to_jsonb(r.*) FROM ragcache.request r
 WHERE r.tenant = %(tenant)s AND starts_with(r.id, %(id)s)
 ORDER BY r.at DESC LIMIT 2
