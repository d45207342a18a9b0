-- What waits for its due time, with all that a due record needs: a page joins nothing.
CREATE TABLE IF NOT EXISTS pending (
    shard          SMALLINT UNSIGNED NOT NULL,
    due_at         BIGINT            NOT NULL,
    id             BIGINT UNSIGNED   NOT NULL,
    gen            INT UNSIGNED      NOT NULL,
    attempt        SMALLINT UNSIGNED NOT NULL,
    failures       SMALLINT UNSIGNED NOT NULL,
    stalls         SMALLINT UNSIGNED NOT NULL,
    task_id        VARBINARY(255)    NOT NULL,
    shard_key      VARBINARY(255)    NULL,
    callback_topic VARBINARY(249)    NOT NULL,
    bury           TINYINT UNSIGNED  NULL COMMENT 'reason: the dispatcher writes it to dead instead of delivering',
    options        VARBINARY(2048)   NOT NULL COMMENT 'Avro',
    history        VARBINARY(4096)   NOT NULL COMMENT 'Avro: past attempts, newest kept when full',
    body           MEDIUMBLOB        NOT NULL COMMENT 'Avro: key, headers, value as delivered',
    PRIMARY KEY (shard, due_at, id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin
