-- forget: deletes meta if the token still is the owner's, so that the next take-over is cold.
--   KEYS  1 meta.   ARGV  1 token.
--   Answer  {OK} | FENCED | LOST (there was none).
--   Cost  O(1).
assert(#KEYS == 1 and #ARGV == 1, 'bad arguments')
local token = redis.call('HGET', KEYS[1], 'token')
if not token then return { 'LOST' } end
if token ~= ARGV[1] then return { 'FENCED' } end
redis.call('UNLINK', KEYS[1])
return { 'OK' }
