-- A reschedule may bring a new expiry along.
ALTER TABLE `change` ADD COLUMN expires_at BIGINT NULL
