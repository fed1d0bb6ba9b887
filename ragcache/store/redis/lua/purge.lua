-- Raise the floor: nothing stored before is served again, and no answer on its way gets in. What
-- lies around is set aside for `clear`. ARGV: prefix, notice, reason.
local c = running()
local last, many, aside = tick(), 0, {}
for _, space in ipairs(redis.call('SMEMBERS', P .. 'spaces')) do
  local uses = P .. 'u:' .. space
  many = many + redis.call('ZCARD', uses)
  if redis.call('EXISTS', uses) == 1 then
    aside[#aside + 1] = 'gone:' .. plain(tick())
    redis.call('RENAME', uses, P .. aside[#aside])
  end
  redis.call('UNLINK', P .. 't:' .. space)
end
redis.call('UNLINK', P .. 'spaces')
renewed({ run = c.run, last = tonumber(redis.call('HGET', CLOCK, 'last')) })
audit('purge', 'tenant', ARGV[3], many)
tell(ARGV[2])
return { many, aside }
