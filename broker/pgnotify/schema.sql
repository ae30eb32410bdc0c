-- The contents of messages that are too large for a notification. It is unlogged, because a message is a hint: after a
-- crash or a failover the table is empty, and every receiver has been told that it lost messages.
CREATE UNLOGGED TABLE messages (
    id      uuid        PRIMARY KEY, -- version 7, made by the publisher
    content bytea       NOT NULL,
    at      timestamptz NOT NULL DEFAULT clock_timestamp()
);
