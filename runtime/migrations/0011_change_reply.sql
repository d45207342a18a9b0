-- Whether a command asks for a reply, and in which form.
ALTER TABLE `change` ADD COLUMN reply TINYINT UNSIGNED NULL COMMENT '1 JSON, 3 Avro, NULL none is asked for'
