-- Every topic that ingest reads. A re-created topic has another id and so gets another number.
CREATE TABLE IF NOT EXISTS source (
    source     SMALLINT UNSIGNED NOT NULL,
    topic      VARBINARY(249)    NOT NULL,
    topic_uuid BINARY(16)        NOT NULL,
    PRIMARY KEY (source),
    UNIQUE KEY uk_topic (topic, topic_uuid)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin
