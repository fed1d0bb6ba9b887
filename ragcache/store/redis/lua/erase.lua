-- Remove some of what a principal has left; return how many entries, and whether more is left.
-- ARGV: prefix, writer, how many, subject, notice.
local left, removed = P .. 'w:' .. ARGV[2], 0
for _, name in ipairs(redis.call('SPOP', left, ARGV[3])) do
  local id = string.sub(name, 3)
  local e = string.sub(name, 1, 1) == 'e' and read(id)
  if e then
    remove(id, e)
    removed = removed + 1
  else
    redis.call('UNLINK', P .. name)
  end
end
if removed > 0 then audit('purge', ARGV[4], 'erasure', removed) end
tell(ARGV[5])
return { removed, redis.call('EXISTS', left) }
