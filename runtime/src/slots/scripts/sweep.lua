-- sweep: for a cold take-over, unlinks leftover keys of the slot. Fenced, so that a late one never hits a new owner's data.
--   KEYS  1 meta, then the keys to unlink (never meta).   ARGV  1 token, 2 expected seq.
--   Answer  FENCED | ROLLED_BACK | LOST | {OK, seq, number unlinked}.
--   Cost  O(1) per key: the server frees them in the background.
assert(#KEYS <= 501 and #ARGV == 2, 'bad arguments')
local found = redis.call('HMGET', KEYS[1], 'token', 'seq')
if not found[1] then return { 'LOST' } end
if found[1] ~= ARGV[1] then return { 'FENCED' } end
if found[2] ~= ARGV[2] then return { 'ROLLED_BACK' } end

local leftovers = {}
for k = 2, #KEYS do
  assert(KEYS[k] ~= KEYS[1], 'meta is not a leftover')
  leftovers[k - 1] = KEYS[k]
end
local unlinked = 0
if #leftovers > 0 then unlinked = redis.call('UNLINK', unpack(leftovers)) end
redis.call('HINCRBY', KEYS[1], 'seq', 1)
return { 'OK', redis.call('HGET', KEYS[1], 'seq'), string.format('%.0f', unlinked) }
