-- slot(row) = the newest entry of its shard with from_due_at <= due_at. Entries are only added.
CREATE TABLE IF NOT EXISTS route (
    shard       SMALLINT UNSIGNED NOT NULL,
    from_due_at BIGINT            NOT NULL,
    slot        SMALLINT UNSIGNED NOT NULL,
    PRIMARY KEY (shard, from_due_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin
