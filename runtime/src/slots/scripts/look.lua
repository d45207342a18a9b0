-- look: tells what waits up to a time (for information: only claim decides what is due), and checks token, seq and the
--   counts of the topics named. Changes nothing but seq.
--   KEYS, ARGV  as common.lua, then: time ms up to which to tell, number of topics to tell.
--   Answer  head, then topics {topic, score, ...}, and for each topic named: {due up to that time, members, ...}, unless
--     that time is 0.
--   Cost  O(log n + topics told), and O(log n) for each topic named.
local refusal = open()
if refusal then return refusal end

local answer = close()
local until_ms = tonumber(ARGV[arg0 + 1])
answer[7] = due_topics(until_ms, tonumber(ARGV[arg0 + 2]))
local depths = {}
for i = 1, until_ms > 0 and n_topics or 0 do
  depths[2 * i - 1] = text(redis.call('ZCOUNT', store_key(i), '-inf', text(until_ms)))
  depths[2 * i] = text(counts.store[i] + counts.prepare[i])
end
answer[8] = depths
return answer
