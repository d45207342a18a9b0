-- take_over: makes a new token the owner of the slot. From here on every script of an earlier owner answers FENCED.
--   KEYS  1 meta, 2 topics, 3 body.   ARGV  1 new token.
--   Answer  {OK, seq, next due ms or '', TIME ms, members, bytes, WARM | NO_META | UNFINISHED | COUNTS_OFF, meta as
--           field, value, ...}.
--   All but WARM leave a bare meta {token, seq, cold = 1}: sweep and start_cold must follow, and whoever takes over
--   before they are through finds UNFINISHED.
--   Cost  O(number of topics): answers all of meta.
local token = ARGV[1]
assert(#KEYS == 3 and #ARGV == 1 and #token == 32, 'bad arguments')

-- Size of a key by `command`; -1 where it has another type.
local function size(command, key)
  local got = redis.pcall(command, key)
  if type(got) == 'table' then return -1 end
  return got
end

local found = redis.pcall('HMGET', KEYS[1], 'token', 'seq', 'cold', 'bodies', 'topics', 'due_pos', 'jpos', 'fence')
local state = 'WARM'
if found.err or not found[1] or not found[2] then
  state = 'NO_META'
elseif found[3] then
  state = 'UNFINISHED'
elseif size('HLEN', KEYS[3]) ~= tonumber(found[4] or -2) or size('ZCARD', KEYS[2]) ~= tonumber(found[5] or -1)
  or not (found[6] and found[7] and found[8]) then
  state = 'COUNTS_OFF'
end

local next_due = ''
if state == 'WARM' then
  redis.call('HSET', KEYS[1], 'token', token)
  next_due = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')[2] or ''
else
  redis.call('UNLINK', KEYS[1])
  redis.call('HSET', KEYS[1], 'token', token, 'seq', (not found.err) and found[2] or '0', 'cold', '1')
end
redis.call('HINCRBY', KEYS[1], 'seq', 1)

local time = redis.call('TIME')
local now = string.format('%.0f', tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000))
local sums = redis.call('HMGET', KEYS[1], 'seq', 'members', 'bytes')
return { 'OK', sums[1], next_due, now, sums[2] or '0', sums[3] or '0', state, redis.call('HGETALL', KEYS[1]) }
