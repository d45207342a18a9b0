-- start_cold: for a cold take-over, after the sweep: an empty slot that stands for the given positions.
--   KEYS  1 meta, 2 topics, 3 body.   ARGV  1 token, 2 expected seq, 3 due_pos, 4 jpos, 5 fence.
--   Answer  FENCED | ROLLED_BACK | LOST | {OK, seq, '', TIME ms, 0, 0}.  `cold` stays until settle says rebuilt.
--   Cost  O(1).
assert(#KEYS == 3 and #ARGV == 5, 'bad arguments')
local found = redis.call('HMGET', KEYS[1], 'token', 'seq')
if not found[1] then return { 'LOST' } end
if found[1] ~= ARGV[1] then return { 'FENCED' } end
if found[2] ~= ARGV[2] then return { 'ROLLED_BACK' } end
assert(redis.call('EXISTS', KEYS[2], KEYS[3]) == 0, 'leftovers were not swept')

redis.call('UNLINK', KEYS[1])
redis.call('HSET', KEYS[1], 'token', ARGV[1], 'seq', ARGV[2], 'cold', '1', 'due_pos', ARGV[3], 'jpos', ARGV[4],
  'fence', ARGV[5], 'members', '0', 'bodies', '0', 'bytes', '0', 'topics', '0')
redis.call('HINCRBY', KEYS[1], 'seq', 1)
local time = redis.call('TIME')
local now = string.format('%.0f', tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000))
return { 'OK', redis.call('HGET', KEYS[1], 'seq'), '', now, '0', '0' }
