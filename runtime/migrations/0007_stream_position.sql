-- How far each input partition has been applied (next) and has had its effects acked (confirmed).
CREATE TABLE IF NOT EXISTS stream_position (
    source      SMALLINT UNSIGNED NOT NULL,
    `partition` SMALLINT UNSIGNED NOT NULL,
    next        BIGINT UNSIGNED   NOT NULL,
    confirmed   BIGINT UNSIGNED   NOT NULL,
    hb_at       BIGINT            NULL COMMENT 'LogAppendTime of the last journal record or acks tick',
    backlog     BIGINT            NULL COMMENT 'from the journal heartbeat',
    credit      BIGINT            NULL COMMENT 'from the journal heartbeat',
    cold_upto   BIGINT            NULL COMMENT 'after a cold barrier: re-emit at once what is due up to here',
    PRIMARY KEY (source, `partition`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin
