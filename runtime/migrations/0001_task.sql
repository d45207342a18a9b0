-- What is known about each task, and its fate. Narrow: the body of a live task lies in pending or running.
CREATE TABLE IF NOT EXISTS task (
    id             BIGINT UNSIGNED   NOT NULL COMMENT 'source(10) | partition(12) | offset(42) of the command that made it',
    identity       BINARY(16)        NOT NULL COMMENT '128-bit hash of (shard_key, task_id)',
    state          TINYINT UNSIGNED  NOT NULL COMMENT '1 scheduled, 2 running, 3 done, 4 dead, 5 cancelled',
    shard          SMALLINT UNSIGNED NOT NULL,
    due_at         BIGINT            NOT NULL COMMENT 'where its row in pending (due_at) or running (deadline_at) lies',
    task_id        VARBINARY(255)    NOT NULL,
    shard_key      VARBINARY(255)    NULL COMMENT 'NULL: the task id serves',
    callback_topic VARBINARY(249)    NOT NULL,
    content_hash   BINARY(16)        NOT NULL COMMENT 'over the fields as submitted',
    gen            INT UNSIGNED      NOT NULL COMMENT 'kept when final: a replay goes on from it',
    attempt        SMALLINT UNSIGNED NOT NULL,
    created_at     BIGINT            NOT NULL,
    finished_at    BIGINT            NULL,
    PRIMARY KEY (id),
    UNIQUE KEY uk_identity (identity)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin
