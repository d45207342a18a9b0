-- What every program must agree on: shards, slots, … Written by duectl init, checked at every start.
CREATE TABLE IF NOT EXISTS setting (
    name  VARBINARY(64)  NOT NULL,
    value VARBINARY(255) NOT NULL,
    PRIMARY KEY (name)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin
