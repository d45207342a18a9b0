-- Prepended to each script but take_over, sweep, start_cold and forget. What a slot's scripts have in common:
--   KEYS  1 meta, 2 topics, 3 body, then for topic i = 1..n: 2+2i store, 3+2i prepare. All share one hash tag.
--   ARGV  1 token, 2 expected seq, 3 n, 4..3+n topic names, then the script's own (from `arg0 + 1`).
--   Answer  FENCED | ROLLED_BACK | LOST, nothing changed (LOST: meta deleted, so that the next take-over is cold), or
--           {OK, seq, next due ms or '', TIME ms, members, bytes, ...}.
--   Cost  a constant number of O(1) calls and two ZCARD per topic, beside the script's own.
-- Numbers that may need 64 bits (seq, positions, fence) stay strings: a Lua number is a double. Due times, counts and
-- sizes stay below 2^53. What raises an error after the first write leaves counts that do not match, hence LOST.
local meta_key, topics_key, body_key = KEYS[1], KEYS[2], KEYS[3]
local n_topics = tonumber(ARGV[3])
local arg0 = 3 + n_topics
assert(#KEYS == 3 + 2 * n_topics, 'keys do not match topics')

local function store_key(i) return KEYS[2 + 2 * i] end
local function prepare_key(i) return KEYS[3 + 2 * i] end
local function topic(i) return ARGV[3 + i] end
local function text(number) return string.format('%.0f', number) end

-- Redis TIME: read once, so that an answer tells the very time that was judged by.
local time = redis.call('TIME')
local started_ms = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)

-- Size of a key by `command`; -1 where it has another type.
local function size(command, key)
  local got = redis.pcall(command, key)
  if type(got) == 'table' then return -1 end
  return got
end

-- Counts as of meta, changed by the script as it goes, written back by close().
local counts = { members = 0, bodies = 0, bytes = 0, topics = 0, store = {}, prepare = {} }
local was = { store = {}, prepare = {} }

-- Checks token, seq and counts. Returns a refusal, or nil.
local function open()
  local fields = { 'token', 'seq', 'members', 'bodies', 'bytes', 'topics' }
  for i = 1, n_topics do
    fields[5 + 2 * i] = 's:' .. topic(i)
    fields[6 + 2 * i] = 'p:' .. topic(i)
  end
  local found = redis.pcall('HMGET', meta_key, unpack(fields))
  if found.err or not found[1] then return { 'LOST' } end
  if found[1] ~= ARGV[1] then return { 'FENCED' } end
  if found[2] ~= ARGV[2] then return { 'ROLLED_BACK' } end
  counts.members = tonumber(found[3] or -2)
  counts.bodies = tonumber(found[4] or -2)
  counts.bytes = tonumber(found[5] or -2)
  counts.topics = tonumber(found[6] or -2)
  local match = size('HLEN', body_key) == counts.bodies and size('ZCARD', topics_key) == counts.topics
  for i = 1, n_topics do
    counts.store[i] = tonumber(found[5 + 2 * i] or 0)
    counts.prepare[i] = tonumber(found[6 + 2 * i] or 0)
    was.store[i], was.prepare[i] = counts.store[i], counts.prepare[i]
    match = match and size('ZCARD', store_key(i)) == counts.store[i]
      and size('ZCARD', prepare_key(i)) == counts.prepare[i]
  end
  if not match then
    redis.call('UNLINK', meta_key)
    return { 'LOST' }
  end
end

-- Adds to the number of members of topic i in store and prepare.
local function count(i, in_store, in_prepare)
  counts.store[i] = counts.store[i] + in_store
  counts.prepare[i] = counts.prepare[i] + in_prepare
  counts.members = counts.members + in_store + in_prepare
end

-- Brings the score of topic i in `topics` in line with its store.
local function refresh(i)
  local head = redis.call('ZRANGE', store_key(i), 0, 0, 'WITHSCORES')
  if head[1] then
    counts.topics = counts.topics + redis.call('ZADD', topics_key, head[2], topic(i))
  else
    counts.topics = counts.topics - redis.call('ZREM', topics_key, topic(i))
  end
end

-- Whether member m has the body of a withdraw intent, and the length of its body (0: it has none).
-- Only small bodies are read (MAX_INTENT_BYTES).
local function is_intent(m)
  local length = redis.call('HSTRLEN', body_key, m)
  if length == 0 or length > 1024 then return false, length end
  return string.byte(redis.call('HGET', body_key, m)) == 87, length
end

-- Topics with something in store up to `now`, the earliest first: {topic, score, ...}.
local function due_topics(now, limit)
  if limit == 0 then return {} end
  return redis.call('ZRANGE', topics_key, '-inf', text(now), 'BYSCORE', 'LIMIT', 0, limit, 'WITHSCORES')
end

-- Writes seq, counts and further fields of meta, and gives the head of the answer.
local function close(more)
  local set, gone = more or {}, {}
  for _, name in ipairs({ 'members', 'bodies', 'bytes', 'topics' }) do
    set[#set + 1] = name
    set[#set + 1] = text(counts[name])
  end
  local function per_topic(prefix, before, after)
    for i = 1, n_topics do
      if after[i] ~= before[i] then
        if after[i] == 0 then
          gone[#gone + 1] = prefix .. topic(i)
        else
          set[#set + 1] = prefix .. topic(i)
          set[#set + 1] = text(after[i])
        end
      end
    end
  end
  per_topic('s:', was.store, counts.store)
  per_topic('p:', was.prepare, counts.prepare)
  if #gone > 0 then redis.call('HDEL', meta_key, unpack(gone)) end
  redis.call('HSET', meta_key, unpack(set))
  redis.call('HINCRBY', meta_key, 'seq', 1)
  local first = redis.call('ZRANGE', topics_key, 0, 0, 'WITHSCORES')
  return {
    'OK', redis.call('HGET', meta_key, 'seq'), first[2] or '', text(started_ms), text(counts.members), text(counts.bytes),
  }
end
