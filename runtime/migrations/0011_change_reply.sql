ALTER TABLE `change` ADD COLUMN reply TINYINT UNSIGNED NULL
    COMMENT 'form of the reply that is asked for: 1 JSON, 3 Avro; NULL: none'
