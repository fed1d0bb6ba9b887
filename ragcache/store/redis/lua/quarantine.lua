-- Set an entry's state. ARGV: prefix, id, state, reason, action, notice, how.
local e = read(ARGV[2])
if not e then return 0 end
redis.call('HSET', P .. 'e:' .. ARGV[2], 'state', ARGV[3], 'reason', ARGV[4],
           'standing', standing(ARGV[3], ARGV[4]))
if ARGV[7] == 'sets' and e.place ~= '' then
  redis.call('VSETATTR', P .. e.place, ARGV[2], attributes(e['until'], e.writer, ARGV[3], ARGV[4]))
end
audit(ARGV[5], ARGV[2], ARGV[4], 1)
tell(ARGV[6])
return 1
