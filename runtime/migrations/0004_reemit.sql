-- Few rows: pending rows that were handed back as stale, or emitted again and waiting.
CREATE TABLE IF NOT EXISTS reemit (
    shard  SMALLINT UNSIGNED NOT NULL,
    due_at BIGINT            NOT NULL,
    id     BIGINT UNSIGNED   NOT NULL,
    gen    INT UNSIGNED      NOT NULL,
    at     BIGINT            NOT NULL COMMENT 'not before',
    n      TINYINT UNSIGNED  NOT NULL COMMENT 'emissions so far: the pause doubles',
    PRIMARY KEY (shard, due_at, id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin
