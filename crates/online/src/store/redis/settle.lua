-- Remembers a position in the log if the one remembered is still the one expected. Another server may
-- have gone on meanwhile, or Redis may have lost rows together with it: then it stays as it is.
local there = redis.call('GET', KEYS[1]) or '0.0'
if there ~= ARGV[1] then
  return 0
end
if ARGV[2] ~= there then
  redis.call('SET', KEYS[1], ARGV[2])
end
return 1
