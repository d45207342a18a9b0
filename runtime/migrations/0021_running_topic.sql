-- Counts of what runs, per callback topic and shard, for topics with a limit.
ALTER TABLE running ADD KEY k_topic (callback_topic)
