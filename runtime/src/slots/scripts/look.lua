-- look: tells what waits up to a time (for information: only claim decides what is due), and checks token, seq and the
--   counts of the topics named. Changes nothing but seq.
--   KEYS, ARGV  as common.lua, then: time ms up to which to tell, number of topics to tell.
--   Answer  head, then topics {topic, score, ...}.
--   Cost  O(log n + topics told).
local refusal = open()
if refusal then return refusal end

local answer = close()
answer[7] = due_topics(tonumber(ARGV[arg0 + 1]), tonumber(ARGV[arg0 + 2]))
return answer
