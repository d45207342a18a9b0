-- One row per shard. cursor_at and confirmed only grow.
CREATE TABLE IF NOT EXISTS shard (
    shard         SMALLINT UNSIGNED NOT NULL,
    epoch         BIGINT UNSIGNED   NOT NULL COMMENT '+1 at each start of a scan: fences the scanner before',
    cursor_at     BIGINT            NOT NULL,
    confirmed_due BIGINT            NOT NULL,
    confirmed_id  BIGINT UNSIGNED   NOT NULL,
    PRIMARY KEY (shard)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin
