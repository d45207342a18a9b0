-- What was delivered and waits for its consumer (completion on_ack), in the order of its deadlines.
CREATE TABLE IF NOT EXISTS running (
    shard          SMALLINT UNSIGNED NOT NULL,
    deadline_at    BIGINT            NOT NULL,
    id             BIGINT UNSIGNED   NOT NULL,
    due_at         BIGINT            NOT NULL COMMENT 'of the generation that was delivered',
    gen            INT UNSIGNED      NOT NULL,
    attempt        SMALLINT UNSIGNED NOT NULL,
    failures       SMALLINT UNSIGNED NOT NULL,
    stalls         SMALLINT UNSIGNED NOT NULL,
    task_id        VARBINARY(255)    NOT NULL,
    shard_key      VARBINARY(255)    NULL,
    callback_topic VARBINARY(249)    NOT NULL,
    options        VARBINARY(2048)   NOT NULL,
    history        VARBINARY(4096)   NOT NULL,
    body           MEDIUMBLOB        NOT NULL,
    progress       VARBINARY(1024)   NULL,
    stop           TINYINT UNSIGNED  NOT NULL COMMENT '1: no further attempts, a failure cancels',
    PRIMARY KEY (shard, deadline_at, id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin
