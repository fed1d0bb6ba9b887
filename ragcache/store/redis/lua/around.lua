-- What lies near a question or under its keys, whoever wrote it and whether it waits or not: how
-- alike the writer's own are (but the one whose place the new one will take), and the entries of
-- others. For admission alone.
-- KEYS: clock, changed, exact, normal. ARGV: prefix, place, namespace, writer, now (us), own, others,
-- how ("sets", "search" or ""), vector, dimensions, exactly up to, partition, exact key.
local c, own, others, seen = clock(), {}, {}, {}
if not c.sound then return { own, others } end
local now, own_max, others_max = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])

local function take(id, similarity)
  local e = not seen[id] and read(id)
  seen[id] = true
  if not e or e.partition ~= ARGV[12] or tonumber(e['until']) <= now
      or standing(e.state, e.reason) == 'held' or not current(c, e) then return end
  local alike = string.format('%.9f', similarity)
  if e.writer ~= ARGV[4] then
    if #others < others_max then others[#others + 1] = { id, e.body, e.state, alike } end
  elseif e.exact ~= ARGV[13] and #own < own_max then
    own[#own + 1] = alike
  end
end

for at = 3, 4 do
  for _, id in ipairs(redis.call('ZREVRANGE', KEYS[at], 0, 63)) do take(id, 1) end
end
if ARGV[9] ~= '' then
  local place, reach = ARGV[2] .. ':' .. plain(epoch(c, ARGV[3])), own_max + others_max
  local near = ARGV[8] == 'sets'
      and ranked_by_sets(place, ARGV[9], reach,
                         '.x > ' .. ARGV[5] .. ' and (.st == "live" or .st == "waiting")',
                         tonumber(ARGV[11]))
      or ranked_by_search(place, ARGV[9], ARGV[10], reach,
                          '@until:[(' .. ARGV[5] .. ' +inf] @standing:{live|waiting}')
  for _, row in ipairs(near) do take(row[1], row[2]) end
end
return { own, others }
