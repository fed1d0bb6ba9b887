-- What an answer begun now depends on. ARGV: prefix, namespace, names (JSON).
local c = running()
local numbers = {}
for at, name in ipairs(cjson.decode(ARGV[3])) do numbers[at] = plain(changed_at(c, name)) end
return { plain(epoch(c, ARGV[2])), numbers }
