-- Store an entry unless what it depends on has changed; make room.
-- KEYS: clock, changed, exact, normal. ARGV: prefix, id, space, exact, normal, writer, partition,
-- state, names (JSON), snapshot's epoch, snapshot's numbers (JSON), quota, created (us),
-- until (us), lifetime (ms), body, place, how, vector, dimensions, quantisation, replace.
local id, space, exact, normal, writer = ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local state, quota = ARGV[8], tonumber(ARGV[12])
local created, expires, life = tonumber(ARGV[13]), tonumber(ARGV[14]), tonumber(ARGV[15]) + GRACE_MS
local entry = P .. 'e:' .. id
if quota == 0 then return 'quota' end

local c = running()
local at_epoch = epoch(c, space)
if plain(at_epoch) ~= ARGV[10] then return 'epoch' end
local names, taken = cjson.decode(ARGV[9]), cjson.decode(ARGV[11])
for _, name in ipairs(names) do
  local number = changed_at(c, name)
  if tonumber(taken[name] or number) ~= number then return 'document_changed' end
end

-- Storing the same entry twice (an unknown outcome) is storing it once.
local there = read(id)
if there and ARGV[22] == '1' then
  remove(id, there)
elseif there then
  return (there.exact == exact and there.writer == writer) and '' or 'exists'
end
-- A newer answer of the same writer takes the place of the older one, under whichever key that
-- can still be found: an index may have been evicted.
for at = 3, 4 do
  for _, other in ipairs(redis.call('ZREVRANGE', KEYS[at], 0, 63)) do
    local e = read(other)
    if not e then
      redis.call('ZREM', KEYS[at], other)
    elseif e.exact == exact and e.writer == writer then
      remove(other, e)
    end
  end
end

local place = ''
if ARGV[17] ~= '' then
  place = ARGV[18] == 'sets' and 'v:' .. ARGV[17] .. ':' .. plain(at_epoch)
      or ARGV[17] .. 'x' .. plain(at_epoch)
end
redis.call('HSET', entry, 'body', ARGV[16], 'state', state, 'reason', '',
           'number', plain(tick()), 'space', space, 'names', ARGV[9], 'partition', ARGV[7],
           'writer', writer, 'place', place, 'exact', exact, 'normal', normal,
           'until', ARGV[14], 'standing', standing(state, ''), 'hits', 0)
redis.call('PEXPIRE', entry, plain(life))
local function index(key, score)
  redis.call('ZADD', P .. key, plain(score), id)
  keep(P .. key, life)
end
index('x:' .. exact, created)
index('m:' .. normal, created)
index('u:' .. space, created)
index('t:' .. space, expires)
for _, name in ipairs(names) do
  redis.call('SADD', P .. 'n:' .. name, id)
  keep(P .. 'n:' .. name, life)
end
redis.call('SADD', P .. 'w:' .. writer, 'e:' .. id)
keep(P .. 'w:' .. writer, life)
redis.call('SADD', P .. 'spaces', space)
keep(P .. 'spaces', life)
stay(life)
if place ~= '' and ARGV[18] == 'sets' then
  redis.call('VADD', P .. place, 'FP32', ARGV[19], id, ARGV[21], 'SETATTR',
             attributes(ARGV[14], writer, state, ''))
  keep(P .. place, life)
elseif place ~= '' then
  redis.call('HSET', entry, 'vector' .. ARGV[20], ARGV[19])
end

-- Make room: what expired a while ago, then what is over the quota, expired ones first.
local function leave(other)
  local e = read(other)
  if e then return remove(other, e) end
  redis.call('ZREM', P .. 'u:' .. space, other)
  redis.call('ZREM', P .. 't:' .. space, other)
end
local function drop(ids) for _, other in ipairs(ids) do leave(other) end end
local past = '(' .. plain(created - GRACE_MS * 1000)
drop(redis.call('ZRANGEBYSCORE', P .. 't:' .. space, '-inf', past, 'LIMIT', 0, 16))
local function excess() return redis.call('ZCARD', P .. 'u:' .. space) - quota end
if excess() > 0 then
  drop(redis.call('ZRANGEBYSCORE', P .. 't:' .. space, '-inf', plain(created), 'LIMIT', 0,
                  math.min(excess(), 100)))
end
if excess() > 0 then
  drop(redis.call('ZRANGE', P .. 'u:' .. space, 0, math.min(excess(), 100) - 1))
end
return ''
