-- Remove some of what a purge has set aside; return whether more is left.
-- KEYS: clock, changed, what was set aside. ARGV: prefix, how many.
local c = clock()
local popped = redis.call('ZPOPMIN', KEYS[3], ARGV[2])
for at = 1, #popped, 2 do
  local e = read(popped[at])
  if e and (not c.sound or tonumber(e.number) <= c.floor) then remove(popped[at], e) end
end
return redis.call('EXISTS', KEYS[3])
