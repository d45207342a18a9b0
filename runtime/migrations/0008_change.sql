-- Intents, answers owed and parked acks: one row per command, gone when answered.
CREATE TABLE IF NOT EXISTS `change` (
    command     BIGINT UNSIGNED  NOT NULL COMMENT 'row id form of the record of the command',
    id          BIGINT UNSIGNED  NOT NULL,
    gen         INT UNSIGNED     NOT NULL,
    kind        TINYINT UNSIGNED NOT NULL COMMENT '1 intent, 2 answer owed, 3 parked ack',
    op          TINYINT UNSIGNED NULL,
    new_due_at  BIGINT           NULL,
    received_at BIGINT           NOT NULL,
    resend_at   BIGINT           NULL,
    task_id     VARBINARY(255)   NULL,
    shard_key   VARBINARY(255)   NULL,
    correlation VARBINARY(255)   NULL,
    answer      TINYINT UNSIGNED NULL,
    reason      VARBINARY(255)   NULL,
    payload     VARBINARY(2048)  NULL,
    PRIMARY KEY (command),
    KEY k_row (id, gen),
    KEY k_resend (resend_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin
