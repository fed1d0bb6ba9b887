-- Remove entries for good; write an audit row. ARGV: prefix, ids (JSON), subject, reason, notice.
local removed = 0
for _, id in ipairs(cjson.decode(ARGV[2])) do
  local e = read(id)
  if e then
    remove(id, e)
    removed = removed + 1
  end
end
audit('purge', ARGV[3], ARGV[4], removed)
tell(ARGV[5])
return removed
