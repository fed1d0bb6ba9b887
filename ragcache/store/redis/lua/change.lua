-- Give documents new numbers; return how many entries that kills.
-- ARGV: prefix, names (JSON), notice, most names to remember.
local c = running()
local names, killed, seen = cjson.decode(ARGV[2]), 0, {}
for _, name in ipairs(names) do
  for _, id in ipairs(redis.call('SMEMBERS', P .. 'n:' .. name)) do
    local e = not seen[id] and read(id)
    if e and current(c, e) then killed = killed + 1 end
    seen[id] = true
  end
end
for _, name in ipairs(names) do redis.call('ZADD', CHANGED, plain(tick()), name) end
local many, most = redis.call('ZCARD', CHANGED), tonumber(ARGV[4])
if many > most then
  -- The oldest half goes. Whatever came from a document before that is no longer trusted.
  local last = redis.call('ZRANGE', CHANGED, math.floor(most / 2), math.floor(most / 2), 'WITHSCORES')
  redis.call('ZREMRANGEBYSCORE', CHANGED, '-inf', last[2])
  redis.call('HSET', CLOCK, 'forgotten', plain(tonumber(last[2])))
  many = redis.call('ZCARD', CHANGED)
end
redis.call('HSET', CLOCK, 'changed', many)
keep(CHANGED, redis.call('PTTL', CLOCK) + GRACE_MS)
tell(ARGV[3])
return killed
