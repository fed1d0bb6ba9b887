-- Entries under either key: the exact one first, the newest first.
-- KEYS: clock, changed, exact, normal. ARGV: prefix, partition, writer, most.
local c, found, seen = clock(), {}, {}
if not c.sound then return found end
for at = 3, 4 do
  for _, id in ipairs(redis.call('ZREVRANGE', KEYS[at], 0, tonumber(ARGV[4]) - 1)) do
    local e = not seen[id] and #found < tonumber(ARGV[4]) and read(id)
    if e and e.partition == ARGV[2] and servable(e, ARGV[3]) then
      found[#found + 1] = { id, e.body, e.state, current(c, e) and 1 or 0 }
    end
    seen[id] = true
  end
end
return found
